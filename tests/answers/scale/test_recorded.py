"""What a run's own record says: the time of checkpoints, and how much its ranks differ."""

from dataclasses import replace
from pathlib import Path

import pytest

from manyheads.runner.answers.scale.recorded import Checkpoints, Recorded
from manyheads.runner.answers.scale.simulator.replay import Assumptions
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder
from tests.answers.scale.test_plan import run_of
from tests.in_process import attempt, small

ONE = Checkpoints(10**9, sharded=False, seconds=0.1, batch=8, by_epoch=False, share=1.0)
ENDED = {"steps": 40, "time": {"compute": 9.0, "checkpoint": 4.0}}
SECONDS = {"data": [1.0, 1.0], "compute": [8.0, 10.0], "optimizer": [1.0, 1.0], "logging": [0.0, 0.0]}


def folder(path: Path, result: dict, checkpoint: str = "last.pt") -> Path:
    found = RunFolder(path)
    place = found.checkpoints / checkpoint
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(1000))
    found.write_json(found.result, result)
    return path


def test_one_rank_takes_as_long_on_more_devices() -> None:
    assert ONE.per_update(devices=64, per_machine=8, batch=8) == 0.1
    assert ONE.per_update(devices=64, per_machine=8, batch=64) == 0.1


def test_epochs_of_larger_updates_have_checkpoints_after_fewer_of_them() -> None:
    assert replace(ONE, by_epoch=True).per_update(devices=8, per_machine=8, batch=64) == pytest.approx(0.8)


def test_machines_write_their_parts_at_the_same_time() -> None:
    parts = replace(ONE, sharded=True)
    assert parts.per_update(devices=8, per_machine=8, batch=8) == pytest.approx(0.1)
    assert parts.per_update(devices=64, per_machine=8, batch=8) == pytest.approx(0.1 / 8)
    assert replace(parts, share=0.5).per_update(devices=8, per_machine=8, batch=8) == pytest.approx(0.2)


def test_the_record_of_a_run(tmp_path: Path) -> None:
    run = run_of("parallel=ddp", "launcher.nproc_per_node=2", "checkpoint.every=10")
    found = Recorded.of(folder(tmp_path, {**ENDED, "rank_seconds": SECONDS}), run)
    assert found.checkpoints == Checkpoints(1000, False, 0.1, 8, False, 1.0)
    # Of two ranks, the slower takes 1 s longer than the mean one's 9 s of passes, and half of the parameter.
    assert found.spread == pytest.approx(2 / 9)
    assert found.assumptions == Assumptions(spread=found.spread)


def test_shards_are_a_folder(tmp_path: Path) -> None:
    run = run_of("parallel=ddp", "launcher.nproc_per_node=2")
    found = Recorded.of(folder(tmp_path, ENDED, "step_00000040/rank_0.pt"), run).checkpoints
    assert found is not None
    assert (found.bytes, found.sharded, found.share, found.by_epoch) == (1000, True, 1.0, True)


def test_ranks_that_differ_by_less_than_single_updates_do_leave_the_assumption(tmp_path: Path) -> None:
    even = {**SECONDS, "compute": [9.0, 9.01]}
    found = Recorded.of(folder(tmp_path, {**ENDED, "rank_seconds": even}), run_of())
    assert found.spread is not None
    assert found.assumptions == Assumptions()


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"steps": 0, "time": {"checkpoint": 1.0}},
        {"steps": 5, "time": {}},
        {"steps": 5, "time": {"checkpoint": float("nan")}},
        {"steps": 5, "rank_seconds": {"compute": [1.0]}},
        {"steps": 5, "rank_seconds": {"compute": [0.0, 0.0]}},
        {"steps": 5, "rank_seconds": {"compute": [1.0, 2.0], "data": [1.0]}},
    ],
)
def test_what_a_run_did_not_record_is_not_known(tmp_path: Path, result: dict) -> None:
    assert Recorded.of(folder(tmp_path, result), run_of()) == Recorded()


def test_without_a_record_nothing_is_known(tmp_path: Path) -> None:
    assert Recorded.of(None, run_of()) == Recorded.of(tmp_path, run_of()) == Recorded()
    assert Recorded().assumptions == Assumptions()


def test_a_real_runs_checkpoints_are_found(tmp_path: Path) -> None:
    config = small("checkpoint.every=10")
    session = attempt(tmp_path, config)
    session.train(seed=0, state=None)
    found = Recorded.of(tmp_path, RunConfig.of(config)).checkpoints
    assert found is not None
    assert found.bytes == (tmp_path / "checkpoints" / "last.pt").stat().st_size
    assert 0 < found.seconds < 1
