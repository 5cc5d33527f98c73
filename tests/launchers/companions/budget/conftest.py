"""A budget that counts for whatever a test starts, and runs as companions see them."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.budget.limits import NAMED
from manyheads.launchers.companions.budget.spending import SpendingLedger, SpentSession

Write = Callable[[str], Path]


@pytest.fixture
def budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the budget's file, and returns its path."""
    path = tmp_path / "shared" / "team.yaml"
    path.parent.mkdir()
    monkeypatch.setenv(NAMED, str(path))

    def write(text: str) -> Path:
        path.write_text(text)
        return path

    return write


def stub(folder: Path, *, trains: bool = True) -> Accompanied:
    """A run in this folder, whose ranks are none."""
    return Accompanied(SimpleNamespace(path=folder, completed=lambda: None), SimpleNamespace(), trains)  # type: ignore[arg-type]


def spent(path: Path, *sessions: SpentSession) -> SpendingLedger:
    """The ledger of a budget in which these sessions have ended."""
    ledger = SpendingLedger(path)
    for session in sessions:
        with ledger.turn():
            line = ledger.add(session)
        line._since -= session.seconds
        line.end()
    return ledger


def session(folder: Path, *, devices: int = 1, seconds: float = 0.0) -> SpentSession:
    return SpentSession.starting(folder, kind="core", devices=devices).after(seconds)


def until(condition: Callable[[], object], *, seconds: float = 20.0) -> None:
    """Wait until a condition holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)
