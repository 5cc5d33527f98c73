"""Run a command of this project as a child process whose output appears here, in scripts and notebooks alike."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.run.errors import ConfigurationError, RunFailed
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.parent_death import die_with_parent

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
            raise RunFailed(
                failure or Failure(exit_code=self.code, type="Ended", message=self.error or "see its output above")
            )


def call(*words: str) -> Ended:
    """Run ``manyheads <words>`` to its end, forwarding its output to ``sys.stdout`` line by line.

    Ctrl-C, or a notebook's stop button, asks the command to stop with a checkpoint; a second one ends it at once.
    Raises KeyboardInterrupt once it has ended.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "manyheads", *words],
        env={**os.environ, "PYTHONPATH": _path(), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,  # Ctrl-C reaches it once, through this process
        preexec_fn=die_with_parent,
    )
    said: list[str] = []
    interrupted = False
    try:
        while True:
            try:
                _show(child, said)
                code = child.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
                child.send_signal(signal.SIGINT)
    finally:
        if child.poll() is None:
            child.terminate()
        if child.stdout:
            child.stdout.close()
        child.wait()
    if interrupted:
        raise KeyboardInterrupt
    return Ended(code, "".join(said).removeprefix(ERROR).strip())


def _show(child: subprocess.Popen, said: list[str]) -> None:
    """Pass on what it says. ``said``: its last error from then on, in lines."""
    for line in child.stdout or ():
        sys.stdout.write(line)
        sys.stdout.flush()
        if line.startswith(ERROR):
            said[:] = [line]
        elif said:
            said.append(line)


def _path() -> str:
    """Where the child finds the very code that this process has imported, wherever that was found."""
    import manyheads

    own = str(Path(manyheads.__file__).absolute().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    if {"site-packages", "dist-packages"} & {*Path(own).parts}:
        return inherited  # it finds what is installed by itself, behind Python's own modules
    return os.pathsep.join(filter(None, [own, inherited]))
