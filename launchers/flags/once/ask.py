"""Answers for one run: with a run that started equally, or by beginning it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from manyheads.launchers.flags.once.equal_runs import EqualRuns, state_of_start
from manyheads.launchers.flags.once.terms import Terms
from manyheads.launchers.resume_run import resume_run
from manyheads.runner.errors import ConfigurationError, Failure, RunFailed, WaitExpired, printable
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.records.run_result import Result
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder, try_part
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import duration, tell

Begun = TypeVar("Begun")
LOCK = ".once.lock"  # each key is a byte of this file; the kernel releases a lock when its process ends
LONGEST_PAUSE = 1.0  # seconds between two looks


class Waiting:
    """A wait for other processes, which says once what it is for. ``seconds``: the longest; None: no limit."""

    def __init__(self, seconds: float | None):
        self._seconds, self._until = seconds, None if seconds is None else time.monotonic() + seconds
        self._said: set[str] = set()
        self._pause = 0.05

    @property
    def has_waited(self) -> bool:
        """Whether time has passed since the question was asked."""
        return bool(self._said)

    def pause(self, reason: str) -> None:
        """Let a moment pass, since ``reason``. Raises WaitExpired once the wait has lasted as long as it may."""
        left = LONGEST_PAUSE if self._until is None else self._until - time.monotonic()
        if left <= 0:
            waited = f" --wait {duration(self._seconds)} has passed." if self._seconds else ""
            raise WaitExpired(f"{reason}, and nothing was started.{waited} Ask again later.")
        if reason not in self._said:
            self._said.add(reason)
            tell(f"{reason}: waiting for it")
        time.sleep(min(left, self._pause))
        self._pause = min(LONGEST_PAUSE, 1.5 * self._pause)


@contextmanager
def turn(root: Path, key: str, waiting: Waiting) -> Iterator[None]:
    """A context that only one process at a time is in, of those with the same key below ``root``.

    ``key``: hexadecimal digits. Raises WaitExpired, and ConfigurationError if the lock file cannot be written.
    """
    path = root.resolve() / LOCK
    byte = int(key[:15], 16)  # fits into the kernel's 63 bits; two keys with the same byte only wait for each other
    try:
        make_folder(path.parent)
        file = open(path, "ab", opener=no_link)  # noqa: SIM115
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written: {error.strerror}. --once keeps a lock there, by which equal commands wait. "
            "Make the folder writable, or leave out --once."
        ) from None
    with file:
        while not try_part(file.fileno(), byte):
            waiting.pause("the same run was asked for, and is being run by another process")
        yield


def answer_or_begin(
    run: RunConfig, terms: Terms, begin: Callable[[], Begun], *, packages: Sequence[str], apart: bool = False
) -> Result | Begun | None:
    """The result of an equal run, or what ``begin`` returns. Raises RunFailed, WaitExpired, and as ``resume_run``.

    ``packages``, ``apart``: as for ``resume_run``.
    """
    start = state_of_start(run)
    if (answer := EqualRuns.of(terms.roots, start).answer(terms.accepts_failed)) is not None:
        return _answered(answer)
    waiting = Waiting(terms.seconds)
    with turn(terms.roots[0], start.key, waiting):
        while (reason := (runs := EqualRuns.of(terms.roots, start)).reason_to_wait) is not None:
            waiting.pause(reason)
        if waiting.has_waited:  # files may have changed meanwhile
            runs = EqualRuns.of(terms.roots, state_of_start(run))
        if (answer := runs.answer(terms.accepts_failed)) is not None:
            return _answered(answer)
        if runs.interrupted:
            tell(f"{runs.interrupted[0]} is the same run, and was interrupted: resuming it")
            return resume_run(runs.interrupted[0], packages, apart=apart)
        return begin()


def _answered(folder: RunFolder) -> Result:
    """The result of a run that has ended, which this command would repeat. Raises RunFailed if it has failed."""
    result = Result.of(folder.path)
    whose = "" if folder.is_own() else ", which was not recorded by you"
    tell(f"{printable(folder)} is the same run{whose}: {result.status}. Nothing was started.")
    if result.status != "completed":
        failed = RunFailed(result.error or Failure(message=f"{folder} has failed"))
        failed.answer = result
        raise failed
    return result
