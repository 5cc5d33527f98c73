"""Several ranks on one GPU, by MANYHEADS_RANKS_PER_GPU: which GPU each computes on, and what is refused."""

import os
from types import SimpleNamespace

import pytest
import torch

from manyheads.launchers.launcher_option import LauncherOption
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop import all_reduce, build
from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import Board
from manyheads.runner.run.rank_info import RankInfo
from tests.in_process import typed

SHARING = "MANYHEADS_RANKS_PER_GPU"
CUDA = ("trainer.device=cuda", "data=synthetic", "data.batch_size=96")


@pytest.fixture
def gpus(monkeypatch):
    """Show this process a number of GPUs, each with a number of ranks."""

    def show(count: int, shared: str | None) -> None:
        boards = [Board("Some GPU", f"GPU-{index}") for index in range(count)]
        monkeypatch.setattr(hardware, "_driver", lambda: ("999.9", boards))
        monkeypatch.setattr(hardware, "torch_cuda_version", lambda: "13.0")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if shared is not None:
            monkeypatch.setenv(SHARING, shared)

    return show


def devices(run) -> list[str]:
    """The device of each rank, as ``build.join`` gives it to the strategy."""
    joined = []
    option = SimpleNamespace(instantiate=lambda **position: joined.append(position) or SimpleNamespace(join=bool))
    launcher = SimpleNamespace(threads_per_rank=1, device_number=run.launcher.device_number)
    shown = SimpleNamespace(trainer=run.trainer, launcher=launcher, parallel=option)
    for rank in range(run.launcher.nproc_per_node):
        build.join(shown, rank=rank, local_rank=rank, world_size=run.launcher.ranks)
    return [position["device_type"] for position in joined]


@pytest.mark.parametrize(
    ("count", "shared", "numbers"),
    [(1, None, [0]), (1, "1", [0]), (1, "4", [0, 0, 0, 0]), (2, "3", [0, 0, 0, 1, 1, 1]), (2, None, [0, 1])],
)
def test_consecutive_ranks_share_a_gpu(gpus, count, shared, numbers):
    gpus(count, shared)
    run = typed("parallel=ddp", f"launcher.nproc_per_node={len(numbers)}", *CUDA)
    assert run.gpus_here == count
    assert devices(run) == [f"cuda:{number}" for number in numbers]
    assert run.launcher._gpus_of_ranks(on_gpus=True) == numbers  # whose cores they are bound to


def test_a_gpu_that_is_not_full_is_used_alone(gpus):
    gpus(2, "4")
    run = typed("parallel=ddp", "launcher.nproc_per_node=3", *CUDA)
    assert (devices(run), run.gpus_here) == (["cuda:0"] * 3, 1)


def test_more_ranks_than_fit_are_refused(gpus):
    gpus(1, "2")
    with pytest.raises(ConfigurationError, match=r"more ranks than GPUs \(1 visible\). Set it to 2 or less"):
        typed("parallel=ddp", "launcher.nproc_per_node=3", *CUDA)


def test_ranks_of_another_launcher_share_too(gpus):
    gpus(2, "2")
    option = typed("launcher=foreign", "trainer.device=cuda", "parallel=single").launcher
    assert [option.device_number(rank, gpus=2) for rank in range(4)] == [0, 0, 1, 1]
    assert [option.device_number(rank, gpus=1) for rank in range(4)] == [0, 0, 0, 0]


def test_the_doctor_s_ranks_share_too(gpus, monkeypatch, tmp_path):
    class Chosen(Exception):
        pass

    def choose(number):
        raise Chosen(number)

    gpus(1, "2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", choose)
    monkeypatch.setattr(all_reduce, "die_with_parent", lambda: None)
    monkeypatch.setattr(all_reduce, "read_rank_info", lambda: RankInfo(rank=1, local_rank=1, world_size=2))
    heart = SimpleNamespace(enter=lambda: None)
    monkeypatch.setattr(all_reduce.Heartbeat, "of_rank", lambda *_: heart)
    with pytest.raises(Chosen, match="^0$"):
        all_reduce.main(str(tmp_path))


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_without_a_gpu_it_is_refused(gpus, device):
    gpus(0, "4")
    with pytest.raises(
        ConfigurationError,
        match="MANYHEADS_RANKS_PER_GPU=4 is not allowed. Allowed: no value, since the run is on CPUs",
    ):
        typed("parallel=ddp", f"trainer.device={device}")


@pytest.mark.parametrize("value", ["0", "two", "", "-1", "1.5"])
def test_other_values_are_refused(gpus, value):
    gpus(1, value)
    with pytest.raises(ConfigurationError, match=f"MANYHEADS_RANKS_PER_GPU={value} is not allowed. Allowed: a whole"):
        typed("parallel=ddp", *CUDA)


def test_unset_means_one(monkeypatch):
    monkeypatch.delenv(SHARING, raising=False)
    assert hardware.ranks_per_gpu() == 1
    assert LauncherOption.device_number(SimpleNamespace(), 3, gpus=4) == 3
    assert SHARING not in os.environ
