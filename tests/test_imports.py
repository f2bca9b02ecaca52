"""The only import directions (the flow of the house plan), read from the source."""

import ast
from pathlib import Path

import labelwise

PACKAGE = Path(labelwise.__file__).parent

# Each imports nothing of ours but what stands before it.
LADDER = ["errors", "storage", "progress", "labels", "hierarchy", "corpus", "scores", "metrics"]
FOUNDATION = set(LADDER) | {"admission", "jsonl", "settings", "registry", "gap"}
ROOMS = {"cli", "service", "datasets", "features", "trees", "network", "methods", "studies", "tuning"}


def imports(path: Path) -> set[str]:
    """First parts of the labelwise modules that a file imports while running; imports for type checks do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" if node.module == "labelwise" else node.module for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("labelwise.")}


FILES = {path.relative_to(PACKAGE).with_suffix("").parts: imports(path) for path in PACKAGE.rglob("*.py")}


def test_the_core_imports_only_what_stands_before_it():
    for place, name in enumerate(LADDER):
        assert FILES[(name,)] <= set(LADDER[:place]), name


def test_nothing_imports_the_command_line_or_the_service():
    for parts, names in FILES.items():
        if parts[0] not in {"cli", "service", "__main__"}:
            assert not names & {"cli", "service"}, parts


def test_networks_trees_and_features_know_nothing_of_methods():
    for parts, names in FILES.items():
        if parts[0] in {"network", "trees", "features"}:
            assert not names & {"methods", "evaluation", "report", "datasets"}, parts


def test_methods_know_nothing_of_data_sets_or_evaluation():
    for parts, names in FILES.items():
        if parts[0] == "methods":
            assert not names & {"datasets", "evaluation", "report", "comparison", "studies", "tuning"}, parts


def test_readers_know_nothing_of_methods():
    for parts, names in FILES.items():
        if parts[0] == "datasets":
            assert names <= FOUNDATION | {"datasets", "features"}, parts


def test_the_package_has_two_levels():
    for parts in FILES:
        assert len(parts) <= 2, parts
        assert len(parts) == 1 or parts[0] in ROOMS, parts
