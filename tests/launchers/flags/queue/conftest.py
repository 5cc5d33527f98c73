"""A working directory with runs that can be queued, and leases of its own."""

from pathlib import Path
from typing import Any

import pytest

from manyheads.launchers.flags.queue.entries import RunQueue
from manyheads.runner.run.run_folder import RunFolder


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_LEASES", str(tmp_path / "leases"))
    return tmp_path


def frozen(name: str, **launcher: Any) -> RunFolder:
    run = RunFolder(f"outputs/{name}")
    run.write_config({"launcher": {"devices": "free", **launcher}})
    return run


def queued(*names: str) -> list[RunFolder]:
    runs = [frozen(name) for name in names]
    with RunQueue.created() as queue, queue.turn():
        for run in runs:
            queue.add(run)
    return runs


def in_queue() -> list[str]:
    with RunQueue.created() as queue, queue.turn():
        return [entry.run.path.name for entry in queue.entries()]
