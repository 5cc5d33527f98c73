"""What rank 0 checks of the others' machines and devices."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from manyheads.launchers.foreign import check_devices, check_storage
from manyheads.launchers.foreign.meeting import Ask
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop import build
from manyheads.runner.machine.hardware import elsewhere
from manyheads.runner.parallel.rank.ddp import DistributedDataParallel
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import typed
from tests.launchers.foreign.test_meeting import OTHER, WORDS, WORLD


def test_a_machine_that_does_not_share_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path)
    check_storage(folder, None, [{"host": "a", "shares": True}])
    assert capsys.readouterr().err == ""
    check_storage(folder, None, [{"host": "a", "shares": True}, {"host": "b", "shares": False}])
    assert "b does not see" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="b: no room"):
        check_storage(folder, None, [{"host": "b", "shares": False, "why": "no room"}])
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/last.pt").touch()
    with pytest.raises(ConfigurationError, match="its last checkpoint, from which every rank resumes"):
        check_storage(folder, None, [{"host": "b", "shares": False}])


def test_each_rank_computes_on_the_only_gpu_that_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by srun --gpus-per-task=1, where every task sees one GPU, number 0."""
    ranks = ("parallel=ddp", "launcher.nproc_per_node=2", "trainer.device=cuda")
    with elsewhere(gpus=1, cores=4):
        foreign = typed(*ranks, "launcher=foreign", "launcher.world_size=2", "launcher.started_by=srun")
        with pytest.raises(ConfigurationError, match="there are more ranks than GPUs"):
            typed(*ranks, "launcher=spawn")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(DistributedDataParallel, "join", lambda self: None)
    assert build.join(foreign, rank=1, local_rank=1, world_size=2).device == torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert build.join(foreign, rank=1, local_rank=1, world_size=2).device == torch.device("cuda:1")


def test_ranks_that_see_the_same_gpu_alone_are_refused() -> None:
    first, second = (replace(Ask.of(world, WORDS), gpu="GPU-a") for world in (WORLD, OTHER))
    check_devices([first, replace(second, gpu="GPU-b")])
    check_devices([first, replace(second, machine="another")])
    check_devices([replace(first, gpu=""), replace(second, gpu="")])
    with pytest.raises(ConfigurationError, match="rank 0 .* and rank 1 .* see the same GPU, GPU-a"):
        check_devices([first, second])
