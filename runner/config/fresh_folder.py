"""A fresh folder for each run and sweep, settled before Hydra writes anything into one."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, read_write

from manyheads.runner.machine.addresses import is_met_elsewhere
from manyheads.runner.run.errors import ConfigurationError, Ended
from manyheads.runner.run.files import fresh_folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder

RESUMED = "MANYHEADS_RESUMED_SEARCH"  # the folder of a search that goes on in this process


def as_typed(overrides: Any) -> list[str]:
    """Overrides with their interpolations unresolved."""
    return cast(list[str], OmegaConf.to_container(overrides, resolve=False))


def refuse(message: str) -> NoReturn:
    """End the process from within a callback, whose ordinary exceptions Hydra turns into warnings."""
    raise Ended(ConfigurationError.exit_code, ConfigurationError(message))


class FreshFolder(Callback):
    """Gives every run its own folder, before Hydra writes anything into one.

    A folder that the user named and that already holds a run is refused; one named by the clock, in the same second as
    another, gets a new name.
    """

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        for override in as_typed(config.hydra.overrides.hydra):
            if override.lstrip("+").startswith("hydra.launcher."):
                refuse(f"{override} is for sweeps, and this is a single run. Add -m, or leave it out.")
        if is_met_elsewhere(config.get("launcher", {})):  # whose run's folder is its parent's
            with read_write(config.hydra):
                config.hydra.run.dir = tempfile.mkdtemp(prefix="manyheads-")
                config.hydra.output_subdir = None
            return
        self._settle(config, "run", lambda path: RunFolder(path).holds_run())

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self._settle(config, "sweep", _holds_sweep)

    @staticmethod
    def _settle(config: DictConfig, kind: str, is_taken: Callable[[Path], bool]) -> None:
        section = config.hydra[kind]
        path = Path(section.dir)
        named = any(override.startswith(f"hydra.{kind}.dir=") for override in as_typed(config.hydra.overrides.hydra))
        try:
            if named and is_taken(path) and os.environ.get(RESUMED) != str(path):
                refuse(f"hydra.{kind}.dir={path} already holds a {kind}. Name another folder, or leave it out.")
            if named:
                path.mkdir(parents=True, exist_ok=True)
                for written in (path / ".hydra", path / "multirun.yaml", *path.glob("*.log")):
                    if written.is_symlink():  # which Hydra would follow
                        refuse(f"hydra.{kind}.dir={path}: {written.name} in it is a link. Remove that link.")
            else:
                with read_write(config.hydra):
                    section.dir = str(fresh_folder(path))
        except OSError as error:
            refuse(f"hydra.{kind}.dir={path} can't be made: {error.strerror}. Name a folder that can.")


def _holds_sweep(path: Path) -> bool:
    """One that was refused before its first job leaves multirun.yaml alone."""
    if (path / "multirun.yaml").exists() and any(child.is_dir() for child in path.iterdir()):
        return True
    return Ledger(path).exists() or (path / "0").exists()
