import pytest

from manyheads.runner.errors import ConfigurationError
from tests.report.sweep import Sweep
from tests.sweeps import set_column, set_config


def test_single_is_the_baseline_wherever_it_stands(sweep: Sweep):
    sweep.job("parallel=ddp", seconds=1.0, ranks=2)
    sweep.job("parallel=single", seconds=2.0)
    rows = sweep.rows()
    assert {row.baseline for row in rows.values()} == {"1"}
    assert rows["0"].speed_up == 2.0
    assert rows["0"].efficiency == 1.0
    assert "parallel=single" in sweep.compared().caption


def test_without_single_it_is_the_first_completed(sweep: Sweep):
    sweep.job("parallel=dp", state="failed", seconds=1.0)
    sweep.job("parallel=ddp", seconds=4.0)
    sweep.job("parallel=horovod", seconds=2.0)
    rows = sweep.rows()
    assert [row.speed_up for row in rows.values()] == [None, 1.0, 2.0]


def test_speed_is_compared_at_the_same_batch_and_precision(sweep: Sweep):
    for batch, seconds in ((8, 3.0), (16, 2.0)):
        for precision in ("fp32", "bf16"):
            for parallel, factor in (("single", 1), ("ddp", 2)):
                choice = (f"parallel={parallel}", f"data.batch_size={batch}", f"precision={precision}")
                sweep.job(*choice, seconds=seconds * factor)
    comparison = sweep.compared()
    assert {row.speed_up for row in comparison.rows} == {1.0, 0.5}
    assert [row.baseline for row in comparison.rows] == ["0", "0", "2", "2", "4", "4", "6", "6"]
    assert "same data.batch_size and precision" in comparison.caption


def test_of_several_baselines_the_most_alike_is_taken(sweep: Sweep):
    for lr in ("0.1", "0.2"):
        for parallel in ("single", "ddp"):
            sweep.job(f"parallel={parallel}", f"optimizer.lr={lr}", seconds=1.0)
    assert [row.baseline for row in sweep.rows().values()] == ["0", "0", "2", "2"]


def test_where_only_precision_was_swept_precisions_are_compared(sweep: Sweep):
    sweep.job("precision=fp32", seconds=2.0)
    sweep.job("precision=bf16", seconds=1.0)
    assert [row.speed_up for row in sweep.rows().values()] == [1.0, 2.0]


def test_what_differs_without_having_been_swept_is_not_compared(sweep: Sweep):
    sweep.job("parallel=single", seconds=2.0)
    set_config(sweep.job("parallel=ddp", seconds=1.0), {"seed": 5})
    comparison = sweep.compared()
    assert [row.speed_up for row in comparison.rows] == [1.0, 1.0]
    assert any("seed differs, though it was not swept (1: job 0; 5: job 1)" in note for note in comparison.notes)


@pytest.mark.parametrize(
    ("named", "speed_ups"),
    [
        ("1", {"0": 0.5, "1": 1.0, "2": 0.25, "3": 1.0}),
        ("parallel=ddp", {"0": 0.5, "1": 1.0, "2": 0.25, "3": 1.0}),
        ("parallel=single,precision=bf16", {"0": 2.0, "1": 4.0, "2": 1.0, "3": 4.0}),
    ],
)
def test_a_baseline_can_be_named(sweep: Sweep, named: str, speed_ups: dict[str, float]):
    for precision, (single, ddp) in {"fp32": (2.0, 1.0), "bf16": (4.0, 1.0)}.items():
        sweep.job("parallel=single", f"precision={precision}", seconds=single)
        sweep.job("parallel=ddp", f"precision={precision}", seconds=ddp)
    assert {number: row.speed_up for number, row in sweep.rows(baseline=named).items()} == speed_ups


@pytest.mark.parametrize(
    ("named", "message"), [("7", "no such job"), ("parallel=apex", "no such job"), ("1", "that job is failed")]
)
def test_a_wrong_baseline_is_refused(sweep: Sweep, named: str, message: str):
    sweep.job("parallel=single")
    sweep.job("parallel=ddp", state="failed")
    with pytest.raises(ConfigurationError, match=message):
        sweep.compared(baseline=named)


@pytest.mark.parametrize("repeats", [1, 2])
def test_efficiency_is_speed_up_for_each_rank(sweep: Sweep, repeats: int):
    times = {"single": ([1.0, 2.0], [1.5, 4.0]), "ddp": ([0.5, 1.3], [0.7, 0.9])}
    for parallel, ranks in (("single", 1), ("ddp", 2)):
        for repeat, seconds in enumerate(times[parallel][:repeats], 1):
            epochs = sweep.job(f"parallel={parallel}", ranks=ranks, repeat=repeat) / "epochs.csv"
            set_column(epochs, "train_seconds", [9.0, *seconds])
            set_column(epochs, "samples_per_second", [80 / each for each in (9.0, *seconds)])
    row = sweep.rows()["1"]
    assert row.speed_up is not None
    assert row.efficiency == pytest.approx(row.speed_up / 2)


def test_a_key_without_effect_divides_no_rows(sweep: Sweep):
    sweep.job("parallel=single", config={"data.fingerprint": "auto"})
    sweep.job("parallel=ddp", config={"data.fingerprint": "contents"})
    comparison = sweep.compared()
    assert {row.group for row in comparison.rows} == {0}
    assert not any("data.fingerprint" in note for note in comparison.notes)
