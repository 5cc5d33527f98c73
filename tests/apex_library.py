"""NVIDIA Apex for tests: the real one where all of it works; elsewhere tests/apex_stand_in, on the CPU."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from manyheads.runner.loop.session import Session
from manyheads.runner.machine import hardware
from tests import in_process

STAND_IN = Path(__file__).parent / "apex_stand_in"


def _is_real() -> bool:
    if find_spec("manyheads.runner.machine.apex_installation") is None:
        return False
    from manyheads.runner.machine.apex_installation import PARTS, unavailable

    return not any(map(unavailable, PARTS))


IS_REAL = _is_real()
DEVICE = "cuda" if IS_REAL else "cpu"
marks = [pytest.mark.gpu] if IS_REAL else []
OURS = ("manyheads.runner.parallel.rank.apex", "manyheads.runner.precision.rank.apex")


@contextmanager
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Meanwhile ``import apex`` succeeds, and the run config's checks find GPUs."""
    if not IS_REAL:
        monkeypatch.syspath_prepend(str(STAND_IN))
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["Stand-in"] * 8)
        forget()
    yield importlib.import_module("apex")
    if not IS_REAL:
        forget()


def forget() -> None:
    for name in [name for name in sys.modules if name in OURS or name.partition(".")[0] in ("apex", "amp_C")]:
        del sys.modules[name]


class Killed(Exception):
    """In the place of a signal."""


def ends(path: Path, config: dict[str, Any], *, killed_after: int) -> list[tuple[str, dict[str, Any]]]:
    """Of an undisturbed run, and of one killed after a checkpoint and resumed: weights' digest, precision's state."""
    whole = in_process.train(path / "whole", config)

    def save(self: Session, *, best: bool, save: Callable[..., None] = Session.save) -> None:
        save(self, best=best)
        if self.trainer.progress.step == killed_after:
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "save", save)
        with pytest.raises(Killed):
            in_process.train(path / "resumed", config)
    resumed = in_process.train(path / "resumed", config)
    runs = (whole, resumed)
    return [(run.folder.read_result()["weights_sha256"], run.trainer.update.precision.state_dict()) for run in runs]


def small(*overrides: str) -> dict[str, Any]:
    """``in_process.small`` where Apex computes."""
    config = in_process.small("trainer.device=cuda", *overrides)
    config["trainer"]["device"] = DEVICE
    return config
