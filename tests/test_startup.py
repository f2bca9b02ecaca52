"""Slow start is the most repeated complaint in this field."""

import resource
import subprocess
import sys

HEAVY = ("torch", "sklearn", "numba", "scipy", "transformers", "matplotlib", "pyoxigraph")


def loaded(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_labelwise_imports_nothing_heavy():
    assert not loaded("import labelwise").intersection({*HEAVY, "numpy"})


def test_the_command_line_imports_nothing_heavy():
    assert not loaded("import labelwise.cli.main").intersection({*HEAVY, "numpy"})


def test_evaluating_imports_neither_torch_nor_sklearn_nor_numba():
    assert not loaded("import labelwise.evaluation, labelwise.methods.lexical").intersection({"torch", "sklearn", "numba"})


def test_help_takes_at_most_four_tenths_of_a_second_of_cpu():
    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "labelwise", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) <= 0.4
