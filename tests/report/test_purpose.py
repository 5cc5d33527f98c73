"""Whether speeds are compared, or settings."""

import pytest

from manyheads.runner.report.columns import shown_columns
from manyheads.runner.report.purpose import is_layout
from tests.report.sweep import Sweep

SPEED = {"speed_up", "scaling_efficiency"}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        *((key, True) for key in ("parallel", "parallel.bucket_cap_mb", "launcher.nproc_per_node", "precision")),
        *((key, True) for key in ("trainer.grad_accumulation", "data.num_workers", "trainer.compile")),
        *((key, False) for key in ("optimizer.lr", "seed", "data.fold", "model", "data.batch_size", "name", "tags")),
    ],
)
def test_a_layout_says_how_a_run_is_computed_and_not_what(key: str, expected: bool):
    assert is_layout(key) == expected


@pytest.mark.parametrize("key", ["optimizer.lr", "trainer.label_smoothing", "data.batch_size"])
def test_a_sweep_over_settings_has_no_speed_ups(sweep: Sweep, key: str):
    sweep.job(f"{key}=1", seconds=1.0)
    sweep.job(f"{key}=2", seconds=4.0)
    comparison = sweep.compared()
    assert not comparison.races
    assert not SPEED & {column.name for column in shown_columns(comparison)}
    assert "Speed-up" not in comparison.caption


def test_a_backend_or_a_named_baseline_makes_it_a_race(sweep: Sweep):
    sweep.job("optimizer.lr=1", seconds=1.0)
    sweep.job("optimizer.lr=2", seconds=4.0)
    named = sweep.compared(baseline="1")
    assert [row.speed_up for row in named.rows] == [4.0, 1.0]
    sweep.job("optimizer.lr=1", "parallel=ddp", seconds=0.5)
    assert sweep.compared().races
    assert {column.name for column in shown_columns(sweep.compared())} >= SPEED


def test_an_experiment_may_bring_the_backend(sweep: Sweep):
    sweep.job("+experiment=debug")
    sweep.job("+experiment=fast")
    assert not sweep.compared().races
    sweep.job("+experiment=mnist_horovod", config={"parallel": "horovod"})
    assert sweep.compared().races
