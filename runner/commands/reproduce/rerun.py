"""``train`` as a child process: with the current code, or with the recorded code in a separate worktree."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.commands.reproduce.recorded import Past
from manyheads.runner.config.command_line import quoted
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.provenance.code_state import ROOT, checkout
from manyheads.runner.report.run_result import result_if_any
from manyheads.runner.run.answer import ChildEnd, run_command
from manyheads.runner.run.files import remove_if_empty
from manyheads.runner.run.program import DISCARD
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.authorize import refuse_untrusted_run
from manyheads.runner.trust.trust_store import split_typed


@dataclass(frozen=True)
class Rerun:
    """``train`` by the code in ``root``, over a saved config."""

    saved: Path  # run.yaml
    root: Path = ROOT

    def run(self, folder: Path, *overrides: str, quiet: bool = False) -> ChildEnd:
        """Run it into ``folder``. Signals are passed on. Raises Interrupted."""
        script = self.root / "run.py"
        train = [str(script)] if script.exists() else ["-m", "manyheads", "train"]
        saved = ["--config-path", str(self.saved.parent), "--config-name", self.saved.stem]
        command = [sys.executable, *train, *saved, *overrides, f"hydra.run.dir={quoted(folder)}"]
        environment = {**os.environ, "PYTHONPATH": self._path()}
        return run_command(command, environment, stdout=DISCARD if quiet else None)

    def train(self, folder: RunFolder, *overrides: str) -> None:
        """Run it into ``folder``. Raises ConfigurationError, RunFailed or Interrupted."""
        ended = self.run(folder.path, *overrides)
        if not ended.code:
            return
        answer = result_if_any(folder.path)
        remove_if_empty(folder.path)  # it holds what is left of the run, unless that was refused
        error = ended.error(answer.error if answer is not None else None)
        error.answer = answer
        raise error

    def _path(self) -> str:
        """Where Python looks for modules: its own first, although another copy of them may be installed."""
        own = [str(self.root / name) for name in (".names", "", "launchers")] if self.root != ROOT else []
        return os.pathsep.join(filter(None, [*own, os.environ.get("PYTHONPATH")]))


@contextmanager
def recorded_program(past: Past, overrides: list[str]) -> Iterator[Rerun]:
    """The recorded commit with the recorded changes, in a worktree that is gone afterwards.

    Raises ConfigurationError if there is no such commit, and for code that the user neither recorded with this run nor
    trusts.
    """
    refuse_untrusted_run(past.folder, split_typed(overrides)[0])  # the program of then may not ask
    commit, diff = past.provenance.get("commit"), past.folder.code_changes()
    if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{40,64}", commit):
        raise ConfigurationError(
            f"--code: {past.folder} was not recorded in a git repository. Leave out --code.", key="--code"
        )
    if not past.folder.owns(commit=commit, **{past.folder.code_diff.name: diff}):
        changes = f" with {past.folder.code_diff.name}" if diff else ""
        raise ConfigurationError(
            f"--code: {past.folder} was not recorded by you, or was edited, and commit {commit}{changes} would be run, "
            "which may have faults that were mended since. Leave out --code; or look at that code, and to trust it, "
            f"run once: {invocation.command('trust', past.folder)}",
            key="--code",
        )
    with checkout(commit, diff) as root:
        yield Rerun(past.folder.config, root)
