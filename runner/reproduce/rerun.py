"""``train`` as a child process: with the current code, or with the recorded code in a separate worktree."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from manyheads.launchers.signals import handled_by
from manyheads.runner.config.arguments import quoted
from manyheads.runner.provenance.code_state import ROOT, checkout, is_in_history, is_known
from manyheads.runner.reproduce.recorded import Past
from manyheads.runner.run import called
from manyheads.runner.run.errors import ConfigurationError, Interrupted
from manyheads.runner.run.parent_death import die_with_parent
from manyheads.runner.run.seal import is_sealed_here
from manyheads.runner.trust.door import refuse_untrusted_run
from manyheads.runner.trust.own import is_own_code, split_typed


@dataclass(frozen=True)
class Program:
    """``train`` by the code in ``root``, over a saved config."""

    saved: Path  # run.yaml
    root: Path = ROOT

    def run(self, folder: Path, *overrides: str, quiet: bool = False) -> int:
        """Run it into ``folder``; returns its exit code. Signals are passed on. Raises Interrupted."""
        script = self.root / "run.py"
        program = [str(script)] if script.exists() else ["-m", "manyheads", "train"]
        saved = ["--config-path", str(self.saved.parent), "--config-name", self.saved.stem]
        command = [sys.executable, *program, *saved, *overrides, f"hydra.run.dir={quoted(folder)}"]
        received: list[int] = []
        children: list[subprocess.Popen] = []

        def pass_on(signum: int, frame: FrameType | None) -> None:
            received.append(signum)
            for child in children:
                child.send_signal(signum)

        with handled_by(pass_on):
            child = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": self._path()},
                stdout=subprocess.DEVNULL if quiet else None,
                process_group=0,  # Ctrl-C reaches it once, through this process
                preexec_fn=die_with_parent,
            )
            children.append(child)
            for signum in received:
                child.send_signal(signum)
            code = child.wait()
        if received:
            raise Interrupted(received[0])
        return code if code >= 0 else 1

    def _path(self) -> str:
        """Where Python looks for modules: its own first, although another copy of them may be installed."""
        own = [str(self.root / name) for name in (".names", "", "launchers")] if self.root != ROOT else []
        return os.pathsep.join(filter(None, [*own, os.environ.get("PYTHONPATH")]))


@contextmanager
def recorded_program(past: Past, overrides: list[str]) -> Iterator[Program]:
    """The recorded commit with the recorded changes, in a worktree that is gone afterwards.

    Raises ConfigurationError where there is no such commit, or the changes are somebody else's and not trusted.
    """
    packages = split_typed(overrides)[0]
    refuse_untrusted_run(past.folder, packages)  # the program of then may not ask
    commit, file = past.provenance.get("commit"), past.folder.code_diff
    if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{40,64}", commit):
        raise ConfigurationError(f"--code: {past.folder} was not recorded in a git repository. Leave out --code.")
    if not is_own_code(past.folder, commit, past.code_diff, past.provenance.get("seal")):
        if past.code_diff and not is_sealed_here(file) and file.name not in packages:
            raise ConfigurationError(
                f"--code: {file} was not created by you on this machine, and would be run. Read it; if you trust "
                f"it, add trust=[{file.name}]."
            )
        if is_known(commit) and not is_in_history(commit):
            raise ConfigurationError(
                f"--code: {past.folder} was not recorded by you, and the commit that it names, {commit}, is not in the "
                f"history of your own code. Look at it; to trust it: {called.command('trust', past.folder)}"
            )
    with checkout(commit, past.code_diff) as root:
        yield Program(past.folder.config, root)
