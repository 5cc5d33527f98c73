"""Trains again with the config of a recorded run, with the current code or a folder's, in a child process."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.config.quoting import quoted
from manyheads.runner.machine import invocation
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.code_state import ROOT
from manyheads.runner.records.run_result import result_if_any
from manyheads.runner.run.child_command import ChildEnd, run_command
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import remove_if_empty
from manyheads.runner.run.frozen_config import run_config
from manyheads.runner.run.program import DISCARD
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class Rerun:
    """``train`` with a saved config. ``saved``: its run.yaml; ``root``: the folder of the code that runs it."""

    saved: Path
    root: Path = ROOT

    def run(self, folder: Path, *overrides: str, quiet: bool = False) -> ChildEnd:
        """Run it into ``folder``, forwarding signals. ``quiet``: discard its output. Raises Interrupted."""
        script = self.root / "run.py"
        train = [str(script)] if script.exists() else ["-m", "manyheads", "train"]
        saved = ["--config-path", str(self.saved.parent), "--config-name", self.saved.stem]
        config = run_config(read_bytes(self.saved), self.saved)
        apart = ["checkpoint.mirror=null"] if config.get("checkpoint", {}).get("mirror") else []  # the recorded run's
        apart += RunFolder(self.saved.parent).kept_threads()
        command = [sys.executable, *train, *saved, *apart, *overrides, f"hydra.run.dir={quoted(folder)}"]
        # The code in ``root`` comes first, since another copy may be installed.
        folders = [str(self.root / name) for name in (".names", "", "launchers")] if self.root != ROOT else []
        path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
        return run_command(command, {**os.environ, "PYTHONPATH": path}, stdout=DISCARD if quiet else None)

    def train(self, folder: RunFolder, *overrides: str) -> None:
        """Run it into ``folder``. Raises ConfigurationError, RunFailed or Interrupted."""
        if not (ended := self.run(folder.path, *overrides)).code:
            return
        answer = result_if_any(folder.path)
        remove_if_empty(folder.path)  # as it is if the run was refused
        error = ended.error(answer.error if answer is not None else None)
        error.answer = answer
        raise error


def longer_command(folder: RunFolder, config: Section) -> str:
    """The command that trains a run twice as long or, if it ended early, to its last epoch."""
    trainer = config.get("trainer", {})
    if ended := (folder.read_result() or {}).get("ended"):
        return invocation.command("resume", folder, f"trainer.{ended}=null")
    key = next((key for key in ("stop_after", "max_steps") if trainer.get(key) is not None), "epochs")
    value = trainer.get(key)
    more = 2 * value if isinstance(value, int) else 30
    return invocation.command("resume", folder, f"trainer.{key}={more}")
