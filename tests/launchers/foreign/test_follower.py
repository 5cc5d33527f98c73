"""What ranks above 0 record of rank 0's end."""

import threading
from pathlib import Path

import pytest

from manyheads.launchers.foreign.follower import witness_end
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
