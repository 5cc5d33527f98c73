"""What ranks above 0 record of rank 0's end."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from manyheads.launchers.foreign import follower
from manyheads.launchers.foreign.follower import witness_end
from manyheads.launchers.foreign.world import OURS
from manyheads.runner.loop import rank_main
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import freeze


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    ranks = ("launcher=foreign", "launcher.nproc_per_node=2", "launcher.started_by=torchrun")
    return freeze(tmp_path / "run", "model=mlp", "trainer.device=cpu", "parallel=ddp", *ranks)


@pytest.mark.parametrize("said", [False, True])
def test_the_death_of_rank_0_is_recorded_unless_it_has_said_how_the_run_ended(folder: RunFolder, said: bool) -> None:
    witness = threading.Thread(target=witness_end, args=(folder,), daemon=True)
    with folder.locked():
        witness.start()
        witness.join(0.2)
        assert folder.read_result() is None
        if said:
            folder.write_json(folder.result, {"status": "completed"})
    witness.join(20)
    result = folder.read_result() or {}
    if said:
        assert result == {"status": "completed"}
        return
    assert (result["status"], result["world_size"], result["launcher"]) == ("failed", 2, "foreign")
    assert (result["error"]["rank"], result["error"]["kind"]) == (0, "ProcessDied")
    assert result["error"]["message"].endswith("torchrun has printed how it ended")


def test_it_is_recorded_while_the_ranks_join(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: str, *, failed: Callable[[], object]) -> None:
        lock.__exit__(None, None, None)  # as the end of rank 0's process releases it
        failed()

    monkeypatch.setenv(OURS, str(os.getpid()))
    monkeypatch.setattr(rank_main, "main", failing)
    lock = folder.locked()
    lock.__enter__()
    follower.main(str(folder.path))
    assert (folder.read_result() or {})["error"]["kind"] == "ProcessDied"


def test_it_is_recorded_by_a_rank_that_begins_after_it(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OURS, "4194305")  # no process has such a number
    monkeypatch.setattr(rank_main, "main", lambda path, *, failed: failed())
    follower.main(str(folder.path))
    assert (folder.read_result() or {})["error"]["rank"] == 0


def test_without_the_lock_of_rank_0_s_machine_nothing_is_recorded(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system on which locks do not reach other machines."""
    monkeypatch.delenv(OURS, raising=False)
    monkeypatch.setattr(rank_main, "main", lambda path: sys.exit(7))
    with pytest.raises(SystemExit, match="7"):
        follower.main(str(folder.path))
    assert folder.read_result() is None
