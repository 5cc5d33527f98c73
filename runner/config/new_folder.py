"""The folder of a new run or sweep, for code that has to know it before Hydra chooses one."""

import time
from collections.abc import Iterable
from pathlib import Path

from manyheads.runner.run.files import fresh_folder

RUN_DIR, SWEEP_DIR = "hydra.run.dir=", "hydra.sweep.dir="
_BELOW = {RUN_DIR: Path("outputs"), SWEEP_DIR: Path("outputs/sweeps")}  # as in conf/config.yaml


def named_folder(overrides: Iterable[str], key: str = RUN_DIR) -> Path | None:
    """The folder that the overrides name, the last of several; None if they name none. key: RUN_DIR or SWEEP_DIR."""
    named = [override.removeprefix(key) for override in overrides if override.startswith(key)]
    return Path(named[-1].strip("'\"")) if named else None


def new_folder(overrides: Iterable[str], key: str = RUN_DIR) -> Path:
    """The folder that the overrides name, else a fresh one, which it creates. key: RUN_DIR or SWEEP_DIR."""
    named = named_folder(overrides, key)
    return named or fresh_folder(_BELOW[key] / time.strftime("%Y-%m-%d") / time.strftime("%H-%M-%S"))
