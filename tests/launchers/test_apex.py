"""Several ranks with Apex's wrapper or precision compute what one rank computes in plain fp32 or fp64."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config.lookup import options
from manyheads.runner.run.run_folder import RunFolder
from tests import apex_library, in_process
from tests.tail import tail, tailed

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("stand_in_for_ranks"), *apex_library.marks]

COMMON = (
    "data.batch_size=24",
    "data.train_samples=240",
    "data.drop_last=false",
    "trainer.log_every=1",
    "trainer.clip_norm=1.0",
    "trainer.grad_accumulation=2",
)
RANKS = [ranks for ranks in (1, 2, 3) if not apex_library.IS_REAL or ranks <= torch.cuda.device_count()]
LAUNCHERS = {"ddp": "spawn", "apex": "spawn", "horovod": "horovodrun"}
FP16 = 0.02 if apex_library.IS_REAL else 1e-4  # the stand-in's O1 casts nothing
# How near a level comes to plain fp32.
PRECISIONS = {"O0": 1e-4, "O1": FP16, "O2": 0.02}

Result = tuple[list[float], dict[str, torch.Tensor], dict]  # losses, weights, result.json


@pytest.fixture
def stand_in_for_ranks(apex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(apex_library.STAND_IN), os.environ["PYTHONPATH"]]))


def ways(strategies: list[str], ranks: list[int]) -> list[tuple[str, str, int]]:
    return [
        (strategy, LAUNCHERS[strategy], count)
        for strategy in strategies
        if strategy in options("parallel")
        for count in ranks
    ]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    """What one rank computes without Apex; once for each choice of overrides."""
    return cache(lambda *overrides: run(tmp_path_factory.mktemp("single"), *overrides))


def run(path: Path, *overrides: str) -> Result:
    folder = RunFolder(path)
    folder.write_config(apex_library.small(*COMMON, *overrides))
    result = launch(prepare(folder))
    losses = [float(row["loss"]) for row in in_process.rows(folder.steps)]
    return losses, torch.load(folder.last_checkpoint, weights_only=True)["model"], result


def on(strategy: str, launcher: str, ranks: int) -> tuple[str, ...]:
    return (f"parallel={strategy}", f"launcher={launcher}", f"launcher.nproc_per_node={ranks}")


def assert_equal(one, other, tolerance: float) -> None:
    assert len(one[0]) == len(other[0]) == 20
    assert one[0] == pytest.approx(other[0], rel=tolerance)
    for name, value in other[1].items():
        assert (one[1][name] - value).norm() <= tolerance * value.norm(), name


# Each delay with two ranks, and three ranks; each level that casts with Apex's wrapper, and one with another.
TWO = RANKS[1:2] or [1]
WRAPPED = [(*way, delay) for way in ways(["apex"], RANKS) for delay in ("true", "false")]
DELAYED = [case for case in WRAPPED if case[2] in TWO or (case[2] == 3 and case[3] == "true")]
LEVELS = [(level, *way) for level in PRECISIONS for way in ways(["ddp", "apex"], TWO)]


@pytest.mark.parametrize(
    ("strategy", "launcher", "ranks", "delay"),
    [
        *tailed(WRAPPED, always=DELAYED),
        *[tail("apex", "torchrun", count, delay) for count in RANKS[1:2] for delay in ("true", "false")],
    ],
)
def test_apex_s_wrapper_computes_what_single_does(single, tmp_path, strategy, launcher, ranks, delay):
    wrapped = (*on(strategy, launcher, ranks), "precision=fp64", f"parallel.delay_allreduce={delay}")
    other = run(tmp_path / "other", *wrapped, "parallel.message_size=50")
    assert_equal(other, single("precision=fp64"), 1e-9)
    assert other[2]["metrics"]["val_samples"] == 37


@pytest.mark.parametrize(
    ("level", "strategy", "launcher", "ranks"),
    [
        *tailed(LEVELS, always=[each for each in LEVELS if each[0] == "O2" or each[:2] == ("O1", "apex")]),
        *[tail("O2", *way) for way in ways(["horovod"], TWO)],  # its ranks are slow to start
    ],
)
def test_apex_s_precision_goes_with_every_wrapper(single, tmp_path, strategy, launcher, ranks, level):
    precision = ("precision=apex", f"precision.opt_level={level}", "precision.loss_scale=128.0")
    other = run(tmp_path / "other", "optimizer.lr=0.01", *precision, *on(strategy, launcher, ranks))
    assert_equal(other, single("optimizer.lr=0.01"), PRECISIONS[level])


@pytest.mark.parametrize(
    ("strategy", "launcher", "ranks"),
    tailed(ways(["ddp", "apex"], RANKS[1:]), always=ways(["apex"], RANKS[1:2])),
)
def test_resuming_gives_the_same_bits(tmp_path, strategy, launcher, ranks):
    shared = (*on(strategy, launcher, ranks), "precision=apex", "precision.opt_level=O2", "scheduler=constant")
    whole = run(tmp_path / "whole", *shared)
    run(tmp_path / "parts", *shared, "trainer.max_steps=10")
    folder = RunFolder(tmp_path / "parts")
    folder.write_config(apex_library.small(*COMMON, *shared))
    folder.result.unlink()
    assert launch(prepare(folder))["weights_sha256"] == whole[2]["weights_sha256"]
