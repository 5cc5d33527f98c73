"""The copy of a run in object storage, kept by a process beside it (``mirror_main``)."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.mirror.mirror_main import FAILED, MAIN, OVER, READY, REFUSED
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed, warn
from manyheads.runner.machine import invocation
from manyheads.runner.option.rules import seconds
from manyheads.runner.run.objects import Address
from manyheads.runner.run.program import PIPE, Process, Program, stop
from manyheads.runner.run.run_folder import LEDGER, RunFolder
from manyheads.runner.wording import listed

GRACE = 5.0  # seconds in addition to checkpoint.mirror_wait
STARTING = 5.0  # training waits this long for a message that the address holds another run
QUIET = 2.0  # seconds at the end after which the user sees what is being waited for
log = logging.getLogger(__name__)


def address_of(folder: RunFolder, mirror: str) -> Address:
    """Where a run is copied to: the address in its config; for a job of a sweep, below it, under the job's name."""
    address = Address.of(mirror, key="checkpoint.mirror")
    return address / folder.path.name if (folder.path.parent / LEDGER).is_file() else address


@contextmanager
def mirrored(run: Accompanied, mirror: str) -> Iterator[None]:
    """A context in which a run is copied to the address ``mirror``; afterwards the rest is stored.

    Raises ConfigurationError if the address holds another run, and RunFailed if the run completed but its last
    checkpoint could not be stored.
    """
    address = address_of(run.folder, mirror)
    follower = _Follower(run.folder, address, run.run.checkpoint.mirror_wait, run.variables)
    try:
        yield
    except BaseException:
        if problem := follower.finish(run.signals):
            warn(problem)
        raise
    if problem := follower.finish(run.signals):
        raise RunFailed(Failure(type=Kind.PROGRAM_FAILED, message=f"the run is complete, but {problem}"))


class _Follower:
    """The process that copies, and its latest message."""

    def __init__(self, folder: RunFolder, address: Address, wait: float | str, variables: Mapping[str, str]):
        self._folder, self._address = folder, address
        self._most = (seconds(wait) or 0.0) + GRACE
        command = [sys.executable, "-m", MAIN, str(folder.path), str(address), str(wait)]
        self._process = Program(command, {**os.environ, **variables}).start(stdin=PIPE, stdout=PIPE)
        self._last: dict[str, Any] = {}
        self._is_ready = threading.Event()
        self._listening = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listening.start()
        self._is_ready.wait(STARTING)
        if self._last.get("state") == REFUSED:
            stop(self._process, seconds=GRACE)
            raise ConfigurationError(str(self._last["error"]), key="checkpoint.mirror", value=str(address))

    def finish(self, signals: Sequence[int]) -> str:
        """Let the process store the rest; returns a clause with what could not be stored, empty if all was."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        before, end = len(signals), time.monotonic() + self._most
        self._listening.join(QUIET)
        if self._listening.is_alive():
            print(
                f"storing the rest in {self._address}, for at most {self._most:g} s; Ctrl-C ends that", file=sys.stderr
            )
        while self._listening.is_alive() and time.monotonic() < end and len(signals) == before:
            self._listening.join(0.05)
        stop(self._process, seconds=GRACE)
        if self._last.get("state") == OVER and not self._last["lacks"]:
            log.info("%s: stored in %s", self._folder, self._address)
            print(f"stored in {self._address}")
            return ""
        files = listed(self._last.get("lacks") or [])
        why = self._last.get("error") or "its process has ended"
        again = invocation.command("resume", self._folder)
        return f"{self._address} does not hold {files or 'all of it'}: {why.rstrip('.')}. To store the rest: {again}"

    def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._last = json.loads(line)
            if self._last["state"] == FAILED:
                log.warning("%s: %s", self._address, self._last["error"])
                warn(f"checkpoints are not stored in {self._address}: {self._last['error']}. Training continues.")
            if self._last["state"] in (READY, REFUSED, FAILED):
                self._is_ready.set()
        self._is_ready.set()
