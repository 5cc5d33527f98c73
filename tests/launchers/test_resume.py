"""A run killed at any step, or during a checkpoint, and resumed ends as one that was never disturbed."""

from itertools import product
from pathlib import Path

import psutil
import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.checkpoint.rank.load import complete
from manyheads.runner.commands.resume import resume
from manyheads.runner.errors import ExitCode, RunFailed
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import freeze, rows, survivors
from tests.launchers.faulty import HALF_A_PART
from tests.optional_wings import audit
from tests.tail import tail, tailed

# 29 updates an epoch; checkpoints in the middle of an epoch and of a log interval.
COMMON = (
    "model=custom",
    "model._target_=faulty.Faulty",
    "data.batch_size=48",
    "trainer.epochs=3",
    "trainer.log_every=5",
    "checkpoint.every=13",
)
WHOLE = ("trainer.max_steps=70",)
RANKS = {
    1: ("parallel=single", "launcher=spawn"),
    2: ("parallel=ddp", "launcher.nproc_per_node=2"),
    3: ("parallel=ddp", "launcher.nproc_per_node=3"),
    "horovod 2": ("parallel=horovod", "launcher.nproc_per_node=2"),
    "horovod 3": ("parallel=horovod", "launcher.nproc_per_node=3"),
}
# Counted in forward passes of training, of which DDP makes two more to begin with: before the first checkpoint,
# just after one, between two, in the second epoch, near the end.
KILLS = ["kill:5", "kill:16", "kill:22", "kill:40", "kill:66", "half a checkpoint:24"]
# At the last step, and in the middle of a checkpoint; of three ranks is test_with_other_state_to_keep.
ALWAYS = [(1, "kill:66"), (2, "half a checkpoint:24")]
SHARDED = {
    "fsdp 2": ("parallel=fsdp", "launcher.nproc_per_node=2", "checkpoint.format=sharded"),
    "ddp 3": ("parallel=ddp", "launcher.nproc_per_node=3", "checkpoint.format=sharded"),
    "fsdp 4": ("parallel=fsdp", "launcher.nproc_per_node=4", "checkpoint.format=sharded"),
}
RANKS |= SHARDED
# With the rank that is killed; only the first one gives a checkpoint its name.
PARTS = [*product(SHARDED, [0, 1], ["half a part"]), *product(SHARDED, [0], ["all but the name"])]
FP16 = ("precision=amp", "precision.dtype=float16")
O2 = ("precision.level=O2", "precision=amp")
ACCUMULATED = ("trainer.grad_accumulation=2", "trainer.clip_norm=0.5")
ADAMW = ("optimizer=adamw", "scheduler=step", "scheduler.every_epochs=1", "data.num_workers=1")
UNUSED = ("parallel.find_unused_parameters=true",)
STATIC = ("parallel.static_graph=true",)
_undisturbed: dict[tuple[int | str, str], RunFolder] = {}


def undisturbed(folder: Path, ranks: int | str, *more: str) -> RunFolder:
    """The same run without a failure, once for each kind."""
    key = (ranks, " ".join(more))
    if key not in _undisturbed:
        _undisturbed[key] = freeze(folder, *COMMON, *RANKS[ranks], "+model.how=nothing", *(more or WHOLE))
        launch(prepare(_undisturbed[key]))
    return _undisturbed[key]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("undisturbed")


@pytest.mark.processes
@pytest.mark.parametrize(("ranks", "kill"), tailed(product([1, 2, 3], KILLS), always=ALWAYS))
def test_killed_and_resumed(tmp_path: Path, kept: Path, ranks: int, kill: str) -> None:
    how, step = kill.split(":")
    expected = undisturbed(kept / str(ranks), ranks)
    fault = (f"+model.how={how}", f"+model.step={step}", f"+model.once={tmp_path / 'failed'}", "+model.rank=0")
    folder = freeze(tmp_path / "run", *COMMON, *RANKS[ranks], *fault, *WHOLE)
    with pytest.raises(RunFailed, match="SIGKILL"):
        launch(prepare(folder))
    result = launch(prepare(folder))
    assert result["status"] == "completed"
    assert result["weights_sha256"] == expected.read_result()["weights_sha256"]
    assert rows(folder.steps) == rows(expected.steps)
    assert rows(folder.epochs) == rows(expected.epochs)
    assert not list(folder.path.rglob(".*.aside"))
    audited = audit(folder.path)
    assert (audited.exit_code, audited.first, audited.last) == (ExitCode.DONE, 1, 70)


@pytest.mark.processes
@pytest.mark.parametrize(("ranks", "rank", "how"), tailed(PARTS, always=[]))
def test_killed_while_ranks_write_their_parts(tmp_path: Path, kept: Path, ranks: str, rank: int, how: str) -> None:
    expected = undisturbed(kept / ranks, ranks, "trainer.max_steps=35")
    fault = (f"+model.how={how}", "+model.step=24", f"+model.once={tmp_path / 'failed'}", f"+model.rank={rank}")
    folder = freeze(tmp_path / "run", *COMMON, *RANKS[ranks], *fault, "trainer.max_steps=35")
    with pytest.raises(RunFailed, match="SIGKILL"):
        launch(prepare(folder))
    assert list(folder.checkpoints.glob(".*.aside"))
    assert_resumes_from_the_one_before(folder, expected)


@pytest.mark.processes
@pytest.mark.parametrize("ranks", tailed(SHARDED, always=[]))
def test_the_parent_is_killed_while_ranks_write_their_parts(tmp_path: Path, kept: Path, parent, ranks: str) -> None:
    expected = undisturbed(kept / ranks, ranks, "trainer.max_steps=35")
    fault = ("+model.how='half a part, and wait'", "+model.step=24", f"+model.once={tmp_path / 'failed'}")
    overrides = (*COMMON, *RANKS[ranks], *fault, "trainer.max_steps=35", "launcher.threads_per_rank=1")
    running = parent(tmp_path / "run", *overrides, f"hydra.run.dir={tmp_path / 'run'}")
    folder = running.folder
    running.wait_until(lambda: any(path.read_bytes() == HALF_A_PART for path in folder.checkpoints.glob(".*/*")))
    running.process.kill()
    assert psutil.wait_procs(survivors(folder), timeout=10)[1] == []
    assert_resumes_from_the_one_before(folder, expected)


def assert_resumes_from_the_one_before(folder: RunFolder, expected: RunFolder) -> None:
    assert folder.last_checkpoint.name == "step_00000013"
    assert launch(prepare(folder))["weights_sha256"] == expected.read_result()["weights_sha256"]
    assert rows(folder.steps) == rows(expected.steps)
    assert not list(folder.path.rglob(".*.aside"))


@pytest.mark.processes
@pytest.mark.parametrize(
    "more",
    [
        # A state that were lost would change the result, whichever of these it is of; the tail says of which.
        (*FP16, *ADAMW, *ACCUMULATED, *UNUSED),
        tail((*O2, *STATIC)),
        *map(tail, (FP16, O2, ACCUMULATED, ADAMW, UNUSED, STATIC)),
    ],
    ids=" ".join,
)
def test_with_other_state_to_keep(tmp_path: Path, kept: Path, more: tuple[str, ...]) -> None:
    passes = 30 if ACCUMULATED[0] in more else 16  # in the 14th update, of epochs of seven
    more = (*more, "trainer.limit_train=7", "trainer.max_steps=18")
    expected = undisturbed(kept / " ".join(more), 3, *more)
    fault = ("+model.how=kill", f"+model.step={passes}", f"+model.once={tmp_path / 'failed'}", "+model.rank=1")
    folder = freeze(tmp_path / "run", *COMMON, *RANKS[3], *fault, *more)
    with pytest.raises(RunFailed, match="SIGKILL"):
        launch(prepare(folder))
    assert complete(folder.last_checkpoint)["progress"]["step"] == 13
    assert launch(prepare(folder))["weights_sha256"] == expected.read_result()["weights_sha256"]


@pytest.mark.processes
@pytest.mark.parametrize("ranks", ["horovod 2", tail("horovod 3")])
@pytest.mark.tail
def test_horovod_keeps_the_scale_and_what_it_has_accumulated(tmp_path: Path, kept: Path, ranks: str) -> None:
    more = (*FP16, *ACCUMULATED, "optimizer=adamw", "trainer.max_steps=16")
    expected = undisturbed(kept / ranks, ranks, *more)
    fault = ("+model.how=kill", "+model.step=30", f"+model.once={tmp_path / 'failed'}", "+model.rank=1")
    folder = freeze(tmp_path / "run", *COMMON, *RANKS[ranks], *fault, *more)
    with pytest.raises(RunFailed, match="SIGKILL"):
        launch(prepare(folder))
    assert launch(prepare(folder))["weights_sha256"] == expected.read_result()["weights_sha256"]


@pytest.mark.processes
@pytest.mark.parametrize("last", [tail(3), tail("horovod 2"), tail("horovod 3")])
def test_goes_on_with_another_strategy_and_other_ranks(tmp_path: Path, last: str) -> None:
    """Killed twice, and each time gone on with elsewhere: the curve is that of an undisturbed run on one rank."""
    common = (*COMMON, "precision=fp64", "trainer.max_steps=60", "trainer.log_every=1")
    alone = freeze(tmp_path / "alone", *common, *RANKS[1], "+model.how=nothing")
    launch(prepare(alone))
    source, folders = None, []
    for ranks, step in ((2, 24), (1, 20), (last, 0)):  # with a checkpoint at 13 and 29
        fault = ("+model.how=kill", f"+model.step={step}", "+model.rank=0")
        resumed = () if source is None else (f"checkpoint.resume={source}",)
        folders.append(freeze(tmp_path / str(ranks), *common, *RANKS[ranks], *fault, *resumed))
        if step:
            with pytest.raises(RunFailed, match="SIGKILL"):
                launch(prepare(folders[-1]))
        else:
            launch(prepare(folders[-1]))
        source = folders[-1].last_checkpoint
    expected = {row["step"]: float(row["loss"]) for row in rows(alone.steps)}
    found = [{row["step"]: float(row["loss"]) for row in rows(folder.steps)} for folder in folders]
    assert [min(map(int, losses)) for losses in found] == [1, 14, 30]
    assert max(map(int, found[-1])) == 60
    for losses in found:
        assert losses == pytest.approx({step: expected[step] for step in losses}, rel=1e-9)
    ends = [torch.load(folder.last_checkpoint, weights_only=True)["model"] for folder in (alone, folders[-1])]
    for name, value in ends[0].items():
        assert (ends[1][name] - value).norm() <= 1e-9 * value.norm(), name


@pytest.mark.processes
def test_completed_run_is_left_alone(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = undisturbed(kept / "2", 2)
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    resume(str(folder.path))
    assert "already complete" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before
