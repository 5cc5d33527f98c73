"""Signals of this process."""

import os
import signal
import time
from contextlib import suppress

import pytest

from manyheads.runner.machine.process import SIGNALS, handled_by


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_handler_acts_in_the_process_that_installed_it_alone(signum):
    received = []
    with handled_by(lambda number, _: received.append(number)):
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                time.sleep(60)
            os._exit(7)
        os.kill(child, signum)  # at once, when Python forgets what a handler received
        _, status = os.waitpid(child, 0)
        assert received == []
        signal.raise_signal(signum)
        assert received == [signum]
    assert os.waitstatus_to_exitcode(status) == (7 if signum == signal.SIGINT else -signal.SIGTERM)
