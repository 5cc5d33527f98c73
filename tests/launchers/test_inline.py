"""Signals to the process that is the run's parent and its first rank."""

import faulthandler
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyheads.launchers.inline import stopping
from manyheads.runner.errors import Interrupted
from manyheads.runner.run.heartbeat import Heartbeat


@pytest.fixture(autouse=True)
def _going_on() -> Iterator[None]:
    """The process would be ended soon after the second signal."""
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def heartbeat(tmp_path: Path) -> Heartbeat:
    """Of two ranks, of which the first has done a step."""
    heartbeat = Heartbeat.create(tmp_path / "heartbeat", ranks=2)
    heartbeat.write(0, [1, 0, 0])
    return heartbeat


def test_the_first_signal_waits_for_the_step_although_another_rank_was_signalled_before(heartbeat: Heartbeat) -> None:
    with stopping(heartbeat, []):
        heartbeat.stop_signal = signal.SIGTERM  # by the other rank, whose launcher signals all of them
        os.kill(os.getpid(), signal.SIGTERM)
        assert heartbeat.stop_signal == signal.SIGTERM


@pytest.mark.parametrize("before", [[], [signal.SIGTERM]])
def test_the_second_signal_ends_the_run_at_once(heartbeat: Heartbeat, before: list[int]) -> None:
    with stopping(heartbeat, before):
        if not before:
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)


def test_before_the_first_step_one_signal_ends_it(tmp_path: Path) -> None:
    with pytest.raises(Interrupted), stopping(Heartbeat.create(tmp_path / "heartbeat", ranks=1), []):
        os.kill(os.getpid(), signal.SIGTERM)
