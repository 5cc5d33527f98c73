"""Run a command of this project as a child process whose output appears here, in scripts and notebooks alike."""

import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.run.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.run.failure import Failure, Kind
from manyheads.runner.run.program import Program

ERROR = "error: "


class Ended(NamedTuple):
    """How a command ended. ``error``: the last error that it printed, or empty."""

    code: int
    error: str

    def check(self, failure: Failure | None = None) -> None:
        """Raises the command's ConfigurationError or RunFailed. failure: what the run recorded of it, if any."""
        if self.code == ConfigurationError.exit_code:
            raise ConfigurationError(self.error or "it was refused; see its output above")
        if self.code:
            message = self.error or "see its output above"
            raise RunFailed(failure or Failure(Kind.PROGRAM_FAILED, exit_code=self.code, message=message))


def call(*words: str) -> Ended:
    """Run ``manyheads <words>`` to its end, forwarding its output to ``sys.stdout`` line by line.

    Ctrl-C, or a notebook's stop button, asks the command to stop with a checkpoint; a second one ends it at once.
    Raises KeyboardInterrupt once it has ended. So does SIGTERM, which then has the effect that it has otherwise.
    """
    program = Program(
        [sys.executable, "-m", "manyheads", *words],
        {**os.environ, "PYTHONPATH": _path(), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
    )
    said: list[str] = []

    def show(line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()
        if line.startswith(ERROR):
            said[:] = [line]
        elif said:
            said.append(line)

    try:
        code = program.run(on_line=show)
    except Interrupted as reason:
        signal.raise_signal(reason.signum)  # which this process was about to get
        raise KeyboardInterrupt from None
    return Ended(code, "".join(said).removeprefix(ERROR).strip())


def _path() -> str:
    """Where the child finds the very code that this process has imported, wherever that was found."""
    import manyheads

    own = str(Path(manyheads.__file__).absolute().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    if {"site-packages", "dist-packages"} & {*Path(own).parts}:
        return inherited  # it finds what is installed by itself, behind Python's own modules
    return os.pathsep.join(filter(None, [own, inherited]))
