"""No logger stops or slows the run that it logs."""

import threading
import time

import pytest

from manyheads.runner.logger import logger as base
from manyheads.runner.logger.logger import Guarded, Logger


class Kept(Logger):
    """Remembers what it is told, in which thread."""

    def __init__(self, *, is_quick: bool):
        self.is_quick, self.told, self.threads = is_quick, [], set()

    def step(self, row):
        self.told.append(row)
        self.threads.add(threading.current_thread())

    def close(self):
        self.told.append("closed")


class Broken(Kept):
    def epoch(self, row):
        raise ConnectionError("the tracker is away")


@pytest.mark.parametrize("is_quick", [True, False])
def test_all_is_passed_on_in_order(is_quick):
    logger, said = Kept(is_quick=is_quick), []
    guard = Guarded("kept", logger, say=said.append)
    for step in range(100):
        guard.step({"step": step})
    guard.close()
    guard.close()
    assert logger.told == [*({"step": step} for step in range(100)), "closed"]
    assert (threading.main_thread() in logger.threads) == is_quick
    assert said == []


@pytest.mark.parametrize("is_quick", [True, False])
def test_one_that_fails_is_left_alone_after_a_warning(is_quick):
    logger, said = Broken(is_quick=is_quick), []
    guard = Guarded("tracker", logger, say=said.append)
    guard.step({})
    guard.epoch({})
    guard.step({})
    guard.close()
    assert logger.told == [{}]
    assert said == ["warning: logger.tracker failed and is not called any more (ConnectionError: the tracker is away)"]


def test_one_that_hangs_costs_the_run_no_time(monkeypatch):
    monkeypatch.setattr(base, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(base, "MOST_WAITING", 5)
    release, said = threading.Event(), []

    class Hanging(Logger):
        def step(self, row):
            release.wait(60)

    guard = Guarded("slow", Hanging(), say=said.append)
    started = time.monotonic()
    for _ in range(20):
        guard.step({})
    guard.close()
    assert time.monotonic() - started < 30
    release.set()
    assert said[0] == "warning: logger.slow did not finish within 0.2 seconds of the run's end"
    assert said[1].startswith("warning: logger.slow was too slow: 1")
