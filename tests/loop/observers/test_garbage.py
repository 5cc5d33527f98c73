"""When cycles are collected."""

import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from manyheads.runner.loop.observers.garbage import ALL_SECONDS, YOUNG_SECONDS, Garbage


class Cycle:
    def __init__(self):
        self.me = self


@pytest.fixture
def seconds(monkeypatch) -> Iterator[list[float]]:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    gc.unfreeze()  # tests run in a process whose modules are frozen
    yield clock
    gc.freeze()


@pytest.mark.parametrize("after", [YOUNG_SECONDS, ALL_SECONDS])
def test_cycles_go_at_the_first_tick_after_an_interval(seconds, after):
    with Garbage() as garbage:
        assert not gc.isenabled()
        left = weakref.ref(Cycle())
        garbage.tick()
        assert left() is not None
        seconds[0] += after
        garbage.tick()
        assert left() is None
    assert gc.isenabled()


def test_what_all_were_searched_once_for_is_kept_until_the_end(seconds):
    early, late = Cycle(), None
    left = weakref.ref(early)
    with Garbage() as garbage:
        for _ in range(3):
            seconds[0] += ALL_SECONDS
            garbage.tick()
            assert gc.get_freeze_count() > len(gc.get_objects())
            if late is not None:  # it was alive at a tick, but not at the first one
                dead = weakref.ref(late)
                late = None
                seconds[0] += ALL_SECONDS
                garbage.tick()
                assert dead() is None
            early, late = None, Cycle()
        assert left() is not None
    assert gc.get_freeze_count() < len(gc.get_objects())
    gc.collect()
    assert left() is None


def test_what_a_rank_was_forked_with_stays_apart(seconds):
    gc.freeze()
    with Garbage() as garbage:
        alive = Cycle()
        seconds[0] += ALL_SECONDS
        garbage.tick()
        assert any(each is alive for each in gc.get_objects())
    assert gc.get_freeze_count() > len(gc.get_objects())


def test_who_has_switched_it_off_keeps_it_so():
    gc.disable()
    try:
        with Garbage():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
