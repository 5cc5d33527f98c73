"""The same run on any backend: same losses, same weights, whatever the launcher and the number of ranks."""

from itertools import product
from pathlib import Path

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from tests.launchers.conftest import LAUNCHERS, freeze, rows, starts_horovod
from tests.tail import tailed

STEPS = ("trainer.max_steps=50", "trainer.log_every=1", "data.batch_size=48", "model.width=8")
HOROVOD = {
    "horovodrun-gloo": ("launcher=horovodrun", "launcher.controller=gloo"),
    "horovodrun-mpi": ("launcher=horovodrun", "launcher.controller=mpi"),
    "mpirun": ("launcher=mpirun",),
}
WAYS = {
    "dp": ("parallel=dp",),
    "inline": ("parallel=ddp", "launcher=inline"),
    **{
        f"{launcher}-{ranks}": ("parallel=ddp", f"launcher={launcher}", f"launcher.nproc_per_node={ranks}")
        for launcher in LAUNCHERS
        for ranks in (1, 2, 3)
        if ranks == 2 or not starts_horovod(launcher)
    },
    **{
        f"horovod-{name}-{ranks}": ("parallel=horovod", *launcher, f"launcher.nproc_per_node={ranks}")
        for name, launcher in HOROVOD.items()
        for ranks in (1, 2, 3)
        if ranks == 2 or name != "horovodrun-mpi"  # which calls mpirun
    },
}
FP32 = ("spawn", "horovod-horovodrun-gloo", "horovod-mpirun-3")
# Every strategy once: that launchers give the same bits is the next test. Horovod's arithmetic has
# tests/parallel/test_horovod.py, and its launcher test_horovod_settings.py.
ALWAYS = [
    *(("fp64", way) for way in ("inline", "spawn-3")),
    ("fp32", "dp"),
]
PRECISIONS = {"fp64": (("precision=fp64", "optimizer.lr=0.1"), 1e-9), "fp32": (("optimizer.lr=0.005",), 1e-5)}
_done: dict[tuple[str, str], tuple[list[float], dict[str, torch.Tensor], str]] = {}


def run(folder: Path, precision: str, way: str) -> tuple[list[float], dict[str, torch.Tensor], str]:
    """Losses of each step, final weights and their digest; each combination is run once."""
    if (precision, way) not in _done:
        overrides = WAYS.get(way, ("parallel=single",))
        run_folder = freeze(folder, *STEPS, *PRECISIONS[precision][0], *overrides)
        result = launch(prepare(run_folder))
        weights = torch.load(run_folder.last_checkpoint, weights_only=True)["model"]
        losses = [float(row["loss"]) for row in rows(run_folder.steps)]
        _done[precision, way] = losses, weights, result["weights_sha256"]
    return _done[precision, way]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("precision", "way"),
    # What starts the ranks is nothing to their arithmetic, so that in fp32 one launcher for each strategy will do.
    tailed(
        [*product(["fp64"], WAYS), *product(["fp32"], ["dp", "inline", *(w for w in WAYS if w.startswith(FP32))])],
        always=ALWAYS,
    ),
)
def test_every_way_computes_the_same(tmp_path: Path, precision: str, way: str) -> None:
    tolerance = PRECISIONS[precision][1]
    losses, weights, _ = run(tmp_path / "single", precision, "single")
    other_losses, other_weights, _ = run(tmp_path / "other", precision, way)
    assert len(losses) == len(other_losses) == 50
    assert losses[-1] < losses[0], "the run has learned nothing, so that equality would mean little"
    assert other_losses == pytest.approx(losses, rel=tolerance)
    for name, value in weights.items():
        assert (other_weights[name] - value).norm() <= tolerance * value.norm(), name


@pytest.mark.processes
@pytest.mark.parametrize(
    ("launcher", "ranks"),
    tailed(
        [(name, ranks) for name in LAUNCHERS for ranks in (1, 2, 3) if name != "spawn" and f"{name}-{ranks}" in WAYS],
        always=[],  # tests/launchers/nodes/test_equal_results.py compares torchrun with spawn
    ),
)
def test_launchers_give_the_same_bits(tmp_path: Path, launcher: str, ranks: int) -> None:
    one, other = (run(tmp_path / name, "fp64", f"{name}-{ranks}")[2] for name in ("spawn", launcher))
    assert one == other


@pytest.mark.processes
@pytest.mark.parametrize(
    "way",
    # Three ranks have an order of summation to keep. Horovod repeats itself in tests/launchers/test_resume.py too.
    tailed(["single", "spawn-2", "spawn-3", "horovod-horovodrun-gloo-3"], always=["spawn-3"]),
)
def test_repeating_gives_the_same_bits(tmp_path: Path, way: str) -> None:
    first = run(tmp_path / "first", "fp64", way)[2]
    del _done["fp64", way]
    assert run(tmp_path / "second", "fp64", way)[2] == first


@pytest.mark.processes
@pytest.mark.parametrize("ranks", tailed([1, 2, 3], always=[3]))
def test_kept_last_batch_counts_every_sample_alike(tmp_path: Path, ranks: int) -> None:
    """1,438 samples in batches of 60 leave 58, which three ranks can't share evenly; accumulation adds to it."""
    common = (
        "precision=fp64",
        "data.batch_size=60",
        "data.drop_last=false",
        "trainer.epochs=1",
        "trainer.log_every=1",
        "trainer.grad_accumulation=2",
        "model.width=8",
    )
    alone = freeze(tmp_path / "alone", *common)
    shared = freeze(tmp_path / "shared", *common, "parallel=ddp", f"launcher.nproc_per_node={ranks}")
    first, second = launch(prepare(alone)), launch(prepare(shared))
    assert second["samples_seen"] == 1438
    assert second["metrics"]["val_samples"] == 359
    assert second["metrics"]["val_loss"] == pytest.approx(first["metrics"]["val_loss"], rel=1e-9)  # after that batch
    expected = [float(row["loss"]) for row in rows(alone.steps)]
    assert [float(row["loss"]) for row in rows(shared.steps)] == pytest.approx(expected, rel=1e-9)


@pytest.mark.processes
@pytest.mark.parametrize("ranks", tailed([2, 3], always=[3]))
def test_ranks_without_samples_keep_step(tmp_path: Path, ranks: int) -> None:
    """The last global batch has one sample: all ranks but one have none, in training and in evaluation."""
    common = (
        "precision=fp64",
        "data=synthetic",
        "data.train_samples=13",
        "data.val_samples=1",
        "data.batch_size=12",
        "data.drop_last=false",
        "trainer.epochs=2",
        "optimizer.lr=0.01",
    )
    alone = freeze(tmp_path / "alone", *common)
    shared = freeze(tmp_path / "shared", *common, "parallel=ddp", f"launcher.nproc_per_node={ranks}")
    first, second = launch(prepare(alone)), launch(prepare(shared))
    assert second["metrics"]["val_samples"] == 1
    assert second["metrics"]["val_loss"] == pytest.approx(first["metrics"]["val_loss"], rel=1e-9)
    assert second["metrics"]["train_loss"] == pytest.approx(first["metrics"]["train_loss"], rel=1e-9)
