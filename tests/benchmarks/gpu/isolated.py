"""A measurement in a process of its own: what one leaves behind, or how it ends, is nothing to the next one."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Forked, so that torch is imported once. The parent never uses the GPU, or the children could not, nor several threads
# for an operation of torch's, after which OpenMP hangs in them.
FORK = get_context("fork")


class Failed(Exception):
    """Why there is no result, in a line."""


def call(function: Callable[..., Any], *arguments: Any, timeout: float, log: Path) -> Any:
    """What ``function`` returns; it has so many seconds. What it prints goes to the log. Raises Failed."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_run, args=(theirs, log, function, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout):
            raise Failed(f"took more than {timeout:.0f} s")
        is_good, value = ours.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        raise Failed(f"its process {how}") from None
    finally:
        _end(process)
    if not is_good:
        raise Failed(value)
    return value


def _end(process: Any) -> None:
    """With its loader and compiler processes, which are of its own group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # if it was not yet of that group
    process.join()


def _run(pipe: Connection, log: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.setsid()
    with open(log, "a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    try:
        pipe.send((True, function(*arguments)))
    except BaseException as error:
        traceback.print_exc()
        pipe.send((False, reason(error)))


def reason(error: BaseException) -> str:
    """A line for the table."""
    if type(error).__name__ == "OutOfMemoryError":
        return "out of memory"
    first = (str(error).strip().splitlines() or [""])[0]
    return first if type(error).__module__ == "manyheads.runner.errors" else f"{type(error).__name__}: {first}"
