"""Docs are run, generated pages are fresh, and the README's file tree is the real one."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_shell_commands_of_the_readme_run(tmp_path):
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line for line in blocks[1].splitlines() if line.strip()]
    assert len(lines) >= 6
    for line in lines:
        command = line.partition("#")[0].replace("labelwise ", f"{sys.executable} -m labelwise ", 1)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, (line, done.stderr)


def test_generated_pages_are_fresh():
    for name, content in generator().pages().items():
        assert (DOCS / name).read_text() == content, f"docs/{name} is stale: run `make docs`"


def test_the_readme_shows_the_latest_results():
    made = generator()
    assert made.with_results((ROOT / "README.md").read_text()) == (ROOT / "README.md").read_text(), "run `make docs`"


def test_the_file_tree_of_the_readme_is_the_real_one():
    block = re.search(r"^```\n(labelwise/\n.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1]
    listed, folder = set(), ""
    for line in block.splitlines():
        name = line.split()[0]
        indent = len(line) - len(line.lstrip())
        if indent == 2:
            folder = name if name.endswith("/") else ""
        if indent and name.endswith(".py"):
            listed.add((folder if indent == 4 else "") + name)
            assert line.split(None, 1)[1], line
    real = {path.relative_to(ROOT / "labelwise").as_posix() for path in (ROOT / "labelwise").rglob("*.py")}
    assert listed == real - {name for name in real if name.endswith("/__init__.py")}


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)


def test_the_example_of_the_corpus_format_is_a_corpus(tmp_path):
    from labelwise.jsonl import read_corpus

    text = (DOCS / "corpus-format.md").read_text()
    for name, content in re.findall(r"`([a-z]+\.(?:toml|jsonl))`:\n\n```(?:toml|json)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content)
    splits = read_corpus(tmp_path)
    assert splits.info.name == "garden"
    assert [len(corpus) for corpus in splits] == [2, 0, 2]


def test_nothing_speaks_of_the_machine_it_was_made_on():
    for path in subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split():
        if path.endswith((".py", ".md", ".toml", ".txt", ".jsonl")) and not path.startswith("tests/"):
            text = (ROOT / path).read_text(encoding="utf-8")
            assert not [place for place in (str(ROOT), str(Path.home())) if len(place) > 1 and place + "/" in text], path
