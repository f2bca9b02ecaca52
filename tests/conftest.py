import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# Two test processes with two threads each would wait for each other most of the time.
os.environ["OMP_NUM_THREADS"] = "1"

# Nothing is kept in the user's cache.
os.environ["LABELWISE_CACHE"] = tempfile.mkdtemp()

from toy import zoo

from labelwise.corpus import Splits
from labelwise.datasets.worlds import make_world
from labelwise.jsonl import write_corpus

atexit.register(shutil.rmtree, os.environ["LABELWISE_CACHE"], ignore_errors=True)

# Compiling a kernel or importing an oracle is no slow test case, and CI must not depend on luck.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@pytest.fixture
def splits() -> Splits:
    return zoo()


@pytest.fixture
def corpus_folder(tmp_path: Path) -> Path:
    write_corpus(zoo(), tmp_path / "zoo")
    return tmp_path / "zoo"


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "world"
    write_corpus(make_world(documents=60, labels=20, words=20), folder)
    return folder
