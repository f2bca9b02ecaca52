import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise import storage
from labelwise.errors import BadModel, OutputExists
from labelwise.storage import find, new_file, new_folder, open_text, to_toml, verify_checksums


def write(folder: Path, text: str = "one", *, force: bool = False) -> None:
    with new_folder(folder, "model", force=force) as draft:
        (draft / "a.txt").write_text(text)


def test_a_folder_appears_with_its_checksums(tmp_path):
    write(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.txt", "checksums.json"]
    verify_checksums(tmp_path / "out")


def test_nothing_is_left_when_the_block_fails(tmp_path):
    def fail() -> None:
        with new_folder(tmp_path / "out", "model") as draft:
            (draft / "a.txt").write_text("half")
            raise RuntimeError

    pytest.raises(RuntimeError, fail)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_folder_as_it_was(tmp_path):
    write(tmp_path / "out", "old")

    def fail() -> None:
        with new_folder(tmp_path / "out", "model", force=True) as draft:
            (draft / "a.txt").write_text("new")
            raise KeyboardInterrupt

    pytest.raises(KeyboardInterrupt, fail)
    assert (tmp_path / "out" / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_existing_output_needs_force(tmp_path):
    write(tmp_path / "out", "old")
    with pytest.raises(OutputExists, match="already exists; add --force"):
        write(tmp_path / "out")
    write(tmp_path / "out", "new", force=True)
    assert (tmp_path / "out" / "a.txt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_force_never_deletes_a_folder_that_is_not_ours(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_text("dear")
    with pytest.raises(OutputExists, match="not written by labelwise"):
        write(tmp_path / "photos", force=True)
    assert (tmp_path / "photos" / "me.jpg").exists()


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    write(tmp_path / "out")
    assert (tmp_path / "out" / "a.txt").exists()


def test_replacing_works_where_folders_cannot_be_swapped_in_one_step(tmp_path, monkeypatch):
    write(tmp_path / "out", "old")
    monkeypatch.setattr(storage.os, "name", "other")
    write(tmp_path / "out", "new", force=True)
    assert (tmp_path / "out" / "a.txt").read_text() == "new"


KILLED = """
import sys, time
from pathlib import Path
from labelwise.storage import new_folder
with new_folder(Path(sys.argv[1]), "model", force=True) as draft:
    (draft / "a.txt").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_kill_in_mid_write_leaves_the_old_folder_and_the_next_write_sweeps_up(tmp_path):
    write(tmp_path / "out", "old")
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert (tmp_path / "out" / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2  # the killed run's draft is still there
    write(tmp_path / "out", "new", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_flipped_byte_is_named(tmp_path):
    write(tmp_path / "out")
    (tmp_path / "out" / "a.txt").write_text("onf")
    with pytest.raises(BadModel, match=r"a\.txt: changed since it was written \(checksum differs\)"):
        verify_checksums(tmp_path / "out")
    (tmp_path / "out" / "a.txt").unlink()
    with pytest.raises(BadModel, match=r"a\.txt: missing"):
        verify_checksums(tmp_path / "out")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_files_are_compressed_by_name_and_read_back(tmp_path, name):
    with new_file(tmp_path / name) as file:
        file.write("grün\n")
    with open_text(tmp_path / name) as file:
        assert file.read() == "grün\n"
    assert find(tmp_path, "a.jsonl") == tmp_path / name


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with new_file(path, force=True) as file:
            file.write("new")
            raise RuntimeError

    pytest.raises(RuntimeError, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


plain = st.one_of(
    st.text(), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False), st.lists(st.integers(0, 9))
)
tables = st.recursive(
    st.dictionaries(st.text(), plain, max_size=4), lambda inner: st.dictionaries(st.text(), plain | inner, max_size=3)
)


@given(tables)
def test_toml_is_read_back_as_it_was_written(values):
    assert tomllib.loads(to_toml(values)) == values


def test_toml_leaves_out_what_is_none():
    assert to_toml({"a": None, "b": {"c": None, "d": 1}}) == "[b]\nd = 1\n"


def test_checksums_are_plain_json(tmp_path):
    write(tmp_path / "out")
    plain = json.loads((tmp_path / "out" / "checksums.json").read_text())
    assert plain["kind"] == "model"
    assert set(plain["sha256"]) == {"a.txt"}


def test_force_replaces_only_an_output_of_the_same_kind(tmp_path):
    write(tmp_path / "out", "old")

    def replace() -> None:
        with new_folder(tmp_path / "out", "corpus", force=True):
            raise AssertionError

    with pytest.raises(OutputExists, match="holds a model, which --force will not replace by a corpus"):
        replace()
    assert (tmp_path / "out" / "a.txt").read_text() == "old"


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    write(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", "new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


def test_names_with_brackets_are_no_pattern(tmp_path):
    write(tmp_path / "a[1]")
    write(tmp_path / "a[1]", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a[1]"]


def test_a_draft_that_somebody_is_writing_is_left_alone(tmp_path):
    with new_folder(tmp_path / "out", "model") as draft:
        (draft / "a.txt").write_text("first")
        write(tmp_path / "other")
        storage._sweep(tmp_path / "out")
        assert (draft / "a.txt").exists()
    assert (tmp_path / "out" / "a.txt").read_text() == "first"


def test_an_existing_file_needs_force(tmp_path):
    (tmp_path / "a.txt").write_text("old")

    def overwrite() -> None:
        with new_file(tmp_path / "a.txt") as file:
            file.write("new")

    with pytest.raises(OutputExists, match="already exists"):
        overwrite()
    assert (tmp_path / "a.txt").read_text() == "old"


def test_damaged_checksums_are_named(tmp_path):
    write(tmp_path / "out")
    (tmp_path / "out" / "checksums.json").write_text("[]")
    with pytest.raises(BadModel, match=r"checksums\.json: damaged"):
        verify_checksums(tmp_path / "out")
