"""Arrays that are made once and mapped from disk."""

import resource
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from labelwise.features.cache import arrays, default_folder
from labelwise.storage import failure

KINDS = st.sampled_from(["float16", "float32", ">i4", "uint16", "int64", "bool"]).map(np.dtype)


def never():
    raise AssertionError("made again")


def counts(made: list[int]):
    def make():
        made.append(1)
        return {"numbers": np.arange(1000), "vectors": iter([np.ones((2, 3)), np.zeros((1, 3))])}

    return make


@given(
    found=st.dictionaries(
        st.sampled_from("abc"), KINDS.flatmap(lambda kind: hn.arrays(kind, hn.array_shapes(min_dims=0, min_side=0)))
    )
)
def test_arrays_come_back_as_they_were_made(found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    first, second = arrays("some", 1, lambda: found, folder), arrays("some", 1, never if found else dict, folder)
    assert first.keys() == second.keys() == found.keys()
    for name, values in found.items():
        for mapped in (first[name], second[name]):
            assert mapped.dtype == values.dtype
            assert not mapped.flags.writeable
            np.testing.assert_array_equal(mapped, values)


@given(st.data())
def test_blocks_become_one_array(tmp_path_factory, data):
    kind, width = data.draw(KINDS), data.draw(hn.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
    shapes = st.integers(0, 3).map(lambda rows: (rows, *width))
    blocks = data.draw(st.lists(shapes.flatmap(lambda shape: hn.arrays(kind, shape)), min_size=1, max_size=5))
    folder = tmp_path_factory.mktemp("cache")
    for make in (lambda: {"rows": (np.asfortranarray(block) for block in blocks)}, never):
        found = arrays("some", 1, make, folder)["rows"]
        assert found.dtype == kind
        np.testing.assert_array_equal(found, np.concatenate(blocks))


def test_blocks_take_the_kind_of_the_first_and_must_have_its_width(tmp_path):
    halves = [np.ones((1, 2), np.float16), np.full((1, 2), 3, np.float64)]
    assert arrays("some", 1, lambda: {"rows": iter(halves)}, tmp_path)["rows"].tolist() == [[1, 1], [3, 3]]
    with pytest.raises(ValueError, match=r"rows: a block of shape \(1, 3\) cannot follow rows of shape \(2,\)"):
        arrays("some", 2, lambda: {"rows": iter([halves[0], np.ones((1, 3))])}, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert arrays("some", 3, lambda: {"rows": iter(())}, tmp_path)["rows"].shape == (0,)


def test_the_name_of_an_entry_is_its_kind_and_what_it_is_made_from(tmp_path):
    keys = [("elmo", {"a": 1, "b": [2]}), ("elmo", {"a": 1, "b": [3]}), ("bert", {"a": 1, "b": [2]})]
    for number, (kind, key) in enumerate(keys):
        arrays(kind, key, lambda number=number: {"number": np.array([number])}, tmp_path)
    assert [arrays(kind, key, never, tmp_path)["number"][0] for kind, key in keys] == [0, 1, 2]
    assert arrays("elmo", {"b": (2,), "a": 1}, never, tmp_path)["number"][0] == 0
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["bert", "elmo", "elmo"]


DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "changed": lambda content: content[:-9] + b"5" + content[-8:],
}


@pytest.mark.parametrize("name", ["numbers.npy", "vectors.npy", "checksums.json"])
@pytest.mark.parametrize("how", ["gone", *DAMAGES])
def test_a_damaged_entry_is_made_again(tmp_path, name, how):
    made: list[int] = []
    arrays("some", 1, counts(made), tmp_path)
    file = next(tmp_path.iterdir()) / name
    content = file.read_bytes()
    file.unlink()
    if how != "gone":
        file.write_bytes(DAMAGES[how](content))
    again = arrays("some", 1, counts(made), tmp_path)
    assert len(made) == 2
    assert again["numbers"].tolist() == list(range(1000))
    assert again["vectors"].tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    assert arrays("some", 1, never, tmp_path).keys() == again.keys()


def test_what_is_mapped_outlives_its_entry(tmp_path):
    found = arrays("some", 1, lambda: {"numbers": np.arange(100_000)}, tmp_path)["numbers"]
    for path in next(tmp_path.iterdir()).iterdir():
        path.unlink()
    assert found.sum() == 4_999_950_000


def test_work_that_fails_leaves_nothing(tmp_path):
    def blocks():
        yield np.zeros(5)
        raise KeyError("heron")

    with pytest.raises(KeyError, match="heron"):
        arrays("some", 1, lambda: {"rows": blocks()}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_is_removed_but_never_what_is_being_written(tmp_path):
    (tmp_path / ".partial-left").mkdir()

    def blocks():
        assert not (tmp_path / ".partial-left").exists()
        yield np.zeros(5)
        arrays("other", 1, lambda: {"numbers": np.arange(3)}, tmp_path)
        yield np.ones(5)

    assert arrays("some", 1, lambda: {"rows": blocks()}, tmp_path)["rows"].sum() == 5
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["other", "some"]


SCRIPT = """
import sys, time, numpy as np
from pathlib import Path
from labelwise.features.cache import arrays
time.sleep(max(0, float(sys.argv[2]) - time.time()))
for key in range(30):
    found = arrays("some", key, lambda: {"rows": iter([np.full((9, 2), key)]), "more": np.arange(key)}, Path(sys.argv[1]))
    assert (found["rows"] == key).all() and found["rows"].shape == (9, 2) and len(found["more"]) == key
"""


def test_processes_that_make_the_same_at_once_all_succeed(tmp_path):
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path), str(time.time() + 1.5)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[1] for process in running] == [""] * 4
    assert [process.returncode for process in running] == [0] * 4
    assert len(list(tmp_path.iterdir())) == 30
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_cache_that_cannot_be_written_warns_once_and_gives_what_was_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for key in range(3):
            assert arrays("some", key, lambda: {"numbers": np.arange(3)}, tmp_path / "file")["numbers"].tolist() == [0, 1, 2]
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"{tmp_path / 'file'}: the cache cannot be written (")
    assert "set LABELWISE_CACHE" in str(caught[0].message)
    assert caught[0].filename == __file__


@pytest.fixture
def full_disk():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_no_error_for_arrays_in_memory(tmp_path):
    with pytest.warns(UserWarning, match="cannot be written"):
        found = arrays("some", 1, lambda: {"numbers": np.arange(1000)}, tmp_path)
    assert found["numbers"].tolist() == list(range(1000))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("full_disk")
def test_blocks_that_do_not_fit_are_an_error_with_a_way_out(tmp_path):
    with pytest.raises(OSError) as caught:
        arrays("some", 1, lambda: {"rows": (np.arange(100) for _ in range(100))}, tmp_path)
    assert failure(caught.value).startswith(f"{tmp_path} (the cache; set LABELWISE_CACHE to a folder with room")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("LABELWISE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache/labelwise"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    assert default_folder() == tmp_path / "shared/labelwise"
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "given"))
    arrays("some", 1, lambda: {"numbers": np.arange(3)})
    assert len(list((tmp_path / "given").iterdir())) == 1
