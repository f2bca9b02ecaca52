"""Work in a thread beside other work."""

import threading

import pytest

from labelwise.methods.beside import Beside
from labelwise.progress import silent


def test_both_end_before_the_block_does():
    done = []
    with Beside(lambda progress: done.extend(progress(range(3), "count"))):
        pass
    assert done == [0, 1, 2]


def test_work_ends_at_its_next_sign_once_the_block_has_failed():
    begun, before = threading.Event(), threading.active_count()

    def endless(progress):
        for _ in progress(iter(int, 1), "count"):
            begun.set()

    def block():
        with Beside(endless):
            begun.wait()
            raise KeyError

    with pytest.raises(KeyError):
        block()
    assert threading.active_count() == before


def test_the_block_ends_at_its_next_sign_once_work_has_failed():
    def fails(progress):
        raise ValueError("no room")

    counted = []

    def block():
        with Beside(fails) as beside:
            beside.wait()
            counted.extend(beside.heeded(silent)(range(10), "count"))

    with pytest.raises(ValueError, match="no room"):
        block()
    assert not counted


def test_failed_work_is_told_at_the_end_of_a_block_without_signs():
    def fails(progress):
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"), Beside(fails):
        pass
