"""Arrays that grow on disk."""

import resource
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.features.spool import Spool
from labelwise.features.tfidf import Tfidf
from labelwise.storage import failure


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9)))
def test_what_was_added_is_read_and_can_be_changed(pieces):
    spool = Spool(np.int32)
    for piece in pieces:
        spool.append(np.array(piece, dtype=np.int64))
    whole = spool.mapped()
    assert whole.dtype == np.int32
    assert whole.tolist() == [value for piece in pieces for value in piece]
    whole[::2] = 7
    assert (spool.mapped()[::2] == 7).all()


def test_the_array_outlives_its_spool_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = Spool(np.float32)
    spool.append(np.ones(10_000))
    whole = spool.mapped()
    del spool
    assert whole.sum() == 10_000
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_that_names_the_folder_and_tmpdir(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            Tfidf().fit(["heron " * 1000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failure(caught.value).startswith(f"{tmp_path} (temporary files; set TMPDIR to a folder with more room): the file grew")
