"""This process: the signals that it receives or blocks, threads, freed memory, and that it ends with its parent."""

import ctypes
import errno
import faulthandler
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from manyheads.runner.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # by which a run is stopped, with a checkpoint
RECEIVED = (*SIGNALS, signal.SIGHUP)  # the last, of a terminal that is closed, counts as SIGTERM
LAST_SECONDS = 20.0  # that this process may take to end after a second signal
Handler = Callable[[int, FrameType | None], None]


class OwnHandler:
    """A signal handler of this process alone: a child, such as those of multiprocessing.Pool, does not inherit it."""

    def __init__(self, handler: Handler):
        self._handler = handler
        _forget_in_children()

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGHUP:
            leave_hung_up_terminal()
        self._handler(signal.SIGTERM if signum == signal.SIGHUP else signum, frame)


@cache
def _forget_in_children() -> None:
    """Have children of this process start with the usual handlers instead of those that are an ``OwnHandler``.

    Signals are blocked until then, since Python forgets those that a handler receives in a child that has just begun.
    """
    before = threading.local()

    def block() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, RECEIVED)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def reset() -> None:
        for signum in RECEIVED:
            if isinstance(signal.getsignal(signum), OwnHandler):
                signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=reset)


def heard_signals() -> list[signal.Signals]:
    """RECEIVED, without SIGHUP if this process was started to ignore it, as by nohup."""
    return [s for s in RECEIVED if s is not signal.SIGHUP or signal.getsignal(s) is not signal.SIG_IGN]


def handle_signals(handler: Handler, *, hang_ups: bool = True) -> dict[signal.Signals, Any]:
    """Let this handler receive the signals; returns the handlers before. ``hang_ups``: as for ``handled_by``."""
    wrapped = OwnHandler(handler)
    return {s: signal.signal(s, wrapped) for s in heard_signals() if hang_ups or s is not signal.SIGHUP}


@contextmanager
def handled_by(handler: Handler, *, hang_ups: bool = True) -> Iterator[None]:
    """A context in which this handler receives the signals; the previous handlers are restored afterwards.

    ``hang_ups``: whether it receives SIGHUP too, whose default is to end this process.
    """
    before = handle_signals(handler, hang_ups=hang_ups)
    try:
        yield
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


@contextmanager
def in_background(work: Callable[[threading.Event], None], *, name: str) -> Iterator[None]:
    """A context during which ``work`` runs in a thread; it receives an event, and must return when that is set."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when its parent ends (Linux: prctl(2), PR_SET_PDEATHSIG).

    Call it in the main thread. The parent must have started this process in its main thread, too.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(1, signum, 0, 0, 0)  # PR_SET_PDEATHSIG
    top = os.environ.get("MANYHEADS_PARENT")
    if os.getppid() != parent or (top is not None and not os.path.exists(f"/proc/{top}")):
        os._exit(1)  # the parent ended before the call


def keep_freed_memory() -> None:
    """Have glibc keep 1 GB of freed memory, which it would return after an update, to fault it in again: mallopt(3)."""
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: its largest value, which torch's tensors reach by themselves
        mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def leave_hung_up_terminal(descriptors: Sequence[int] = (1, 2)) -> bool:
    """Let output go nowhere if its terminal has hung up, since each write would fail; returns whether any has."""
    has_left = False
    for descriptor in descriptors:
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # ENOTTY of what is not a terminal
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
                has_left = True
    return has_left


@contextmanager
def received_signals(*, hang_ups: bool = True) -> Iterator[list[int]]:
    """A context in which signals are collected in a list; after the second, this process has LAST_SECONDS to end.

    ``hang_ups``: as for ``handled_by``.
    """
    received: list[int] = []

    def receive(signum: int, _: FrameType | None) -> None:
        received.append(signum)
        if len(received) == 2:
            end_within(LAST_SECONDS)

    try:
        with handled_by(receive, hang_ups=hang_ups):
            yield received
    finally:
        faulthandler.cancel_dump_traceback_later()


def end_within(seconds: float) -> None:
    """End this process after ``seconds`` with exit code 1 and a traceback; processes that it started die too.

    A thread in C does it, which no Python code can delay. Leaving ``received_signals`` cancels it.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)


def interrupt(signum: int, _: FrameType | None) -> None:
    """A signal handler that raises Interrupted."""
    raise Interrupted(signum)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """A context in which signals are blocked; processes started in it unblock them when they are ready.

    Ctrl-C reaches every process of the terminal's process group, including those that are still importing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, RECEIVED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
