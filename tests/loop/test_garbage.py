"""When cycles are collected."""

import gc
import time
import weakref

import pytest

from manyheads.runner.loop.garbage import ALL_SECONDS, YOUNG_SECONDS, Garbage


class Cycle:
    def __init__(self):
        self.me = self


@pytest.fixture
def seconds(monkeypatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


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


def test_who_has_switched_it_off_keeps_it_so():
    gc.disable()
    try:
        with Garbage():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
