"""The signals that a process receives, and a terminal that hangs up."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from manyheads.runner.logger import terminal
from manyheads.runner.logger.terminal import Screen
from manyheads.runner.machine.process import SIGNALS, handled_by, leave_hung_up_terminal, received_signals


@pytest.fixture
def hung_up():
    """A descriptor of a terminal that has hung up."""
    master, slave = pty.openpty()
    os.close(master)
    yield slave
    os.close(slave)


@pytest.fixture(autouse=True)
def _handler_stays():
    """Whatever a test does with SIGHUP."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("sent", "received"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)],
)
def test_a_closed_terminal_counts_as_sigterm(sent, received):
    with received_signals() as signals:
        os.kill(os.getpid(), sent)
    assert signals == [received]


def test_a_hang_up_that_is_ignored_stays_ignored():
    """As below nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with received_signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
    assert signals == []
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_where_a_run_continues_elsewhere_a_hang_up_ends_this_process():
    with received_signals(hang_ups=False):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_handlers_are_restored():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with handled_by(lambda *_: None):
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_output_to_a_terminal_that_hung_up_goes_nowhere(hung_up, tmp_path):
    with open(tmp_path / "file", "wb") as file:
        assert not leave_hung_up_terminal([file.fileno()])
    with pytest.raises(OSError, match="Input/output error"):
        os.write(hung_up, b"x")
    assert leave_hung_up_terminal([hung_up])
    assert os.write(hung_up, b"x") == 1


def test_a_display_on_a_terminal_that_hung_up_shows_nothing(hung_up, monkeypatch):
    monkeypatch.setattr(terminal, "leave_hung_up_terminal", lambda: leave_hung_up_terminal([hung_up]))
    screen = Screen(file=os.fdopen(hung_up, "w", closefd=False))
    screen.print("a line")
    screen.print("another")


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_handler_acts_in_the_process_that_installed_it_alone(signum):
    received = []
    with handled_by(lambda number, _: received.append(number)):
        ready, begun = os.pipe()
        child = os.fork()
        if child == 0:
            with suppress(KeyboardInterrupt):  # which SIGINT raises in any Python
                os.write(begun, b"x")
                time.sleep(60)
                os._exit(1)
            os._exit(7)
        if signum == signal.SIGINT:
            os.read(ready, 1)
        os.kill(child, signum)  # SIGTERM at once, when Python forgets what a handler received
        os.close(ready)
        os.close(begun)
        _, status = os.waitpid(child, 0)
        assert received == []
        signal.raise_signal(signum)
        assert received == [signum]
    assert os.waitstatus_to_exitcode(status) == (7 if signum == signal.SIGINT else -signal.SIGTERM)


FREES = """
import resource
from manyheads.runner.machine.process import keep_freed_memory
keep_freed_memory()
for _ in range(10):
    pair = [b"." * 2**24, b"." * 2**24]
    del pair
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not hasattr(os, "confstr") or not os.confstr("CS_GNU_LIBC_VERSION"), reason="glibc's")
def test_freed_memory_is_kept_unless_the_environment_decides():
    """Twice 16 MB, eight thousand pages, ten times."""
    bare = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", FREES]
    kept, returned = (
        int(subprocess.run(command, env=bare | chosen, check=True, stdout=subprocess.PIPE, text=True).stdout)
        for chosen in ({}, {"MALLOC_TRIM_THRESHOLD_": "0"})
    )
    assert returned - kept > 60_000
