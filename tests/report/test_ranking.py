"""Rows by the objective, seeds and folds averaged."""

from pathlib import Path

import pytest

from manyheads.runner.records.run_set import gather
from manyheads.runner.report.columns import file_columns, shown_columns
from manyheads.runner.report.comparison import Comparison, compare
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.score_versions import unlike
from tests.report.sweep import Sweep
from tests.sweeps import set_config


def scored(best: float, **more: object) -> dict[str, object]:
    """What result.json has of a run whose best epoch came to this."""
    return {"best": {"val_acc1": best}, "metrics": {"val_acc1": best - 1}, **more}


def shown(comparison: Comparison, name: str) -> list[str]:
    (column,) = (column for column in shown_columns(comparison) if column.name == name)
    return [column.text(row) for row in comparison.rows]


def test_the_best_row_comes_first_and_is_marked(sweep: Sweep):
    for rate, best in ((0.1, 90.0), (0.2, 95.0), (0.3, 92.0)):
        sweep.job(f"optimizer.lr={rate}", result=scored(best))
    sweep.job("optimizer.lr=0.4", state="failed", result=scored(99.0))
    comparison = sweep.compared()
    assert [row.number for row in comparison.rows] == ["1", "2", "0", "3"]
    assert [row.is_best for row in comparison.rows] == [True, False, False, False]
    assert comparison.rows[0].marks == ["best"]
    caption = "Sorted by best accuracy: each run's highest validation accuracy after any epoch"
    assert comparison.caption == f"{caption}; of one run each: a difference may be chance."
    assert shown(comparison, "objective_mean")[:3] == ["95.00 %", "92.00 %", "90.00 %"]
    assert shown(comparison, "val_acc1")[0] == "94.00 %"  # of the last epoch


def test_of_a_monitored_loss_less_is_better(sweep: Sweep):
    scores = {"monitor": "val_loss", "direction": "min", "metrics": {"acc1": {"label": "accuracy", "unit": "%"}}}
    for loss in (0.5, 0.25):
        sweep.job(f"optimizer.lr={loss}", result={"best": {"val_loss": loss, "val_acc1": 50.0}, "scores": scores})
    comparison = sweep.compared()
    assert [row.number for row in comparison.rows] == ["1", "0"]
    assert shown(comparison, "objective_mean") == ["0.250", "0.500"]
    assert "lowest validation loss" in comparison.caption


def test_equal_rows_are_not_told_apart(sweep: Sweep):
    for rate in (0.1, 0.2):
        sweep.job(f"optimizer.lr={rate}", result=scored(90.0))
    assert not any(row.is_best for row in sweep.compared().rows)
    assert sweep.compared().caption == ""


def test_in_a_race_rows_stay_where_they_are(sweep: Sweep):
    for parallel, best in (("single", 90.0), ("ddp", 91.0)):
        sweep.job(f"parallel={parallel}", result=scored(best))
    comparison = sweep.compared()
    assert [row.number for row in comparison.rows] == ["0", "1"]
    assert not any(row.is_best for row in comparison.rows)


def test_seeds_are_one_row_with_mean_and_standard_deviation(sweep: Sweep):
    for rate, values in ((0.1, (90.0, 92.0, 94.0)), (0.2, (80.0, 81.0, 82.0))):
        for seed, best in enumerate(values):
            job = sweep.job(f"optimizer.lr={rate}", f"seed={seed}", result=scored(best, weights_sha256=f"{best}"))
            set_config(job, {"seed": seed})
    comparison = sweep.compared()
    assert comparison.swept == ["optimizer.lr"]
    assert comparison.headline == "6 of 6 jobs completed"
    assert [row.numbers for row in comparison.rows] == [["0", "1", "2"], ["3", "4", "5"]]
    assert shown(comparison, "objective_mean") == ["92.00 ± 2.00 %", "81.00 ± 1.00 %"]
    assert shown(comparison, "runs") == ["3", "3"]
    assert shown(comparison, "job")[0] == "0, 1, 2"
    assert comparison.notes == []
    values = {column.name: column.value(comparison.rows[0]) for column in file_columns(comparison)}
    assert (values["objective_mean"], values["objective_std"], values["runs"]) == (92.0, 2.0, 3)
    assert values["jobs"] == "0 1 2"


def test_a_seed_that_failed_is_told_and_named(sweep: Sweep):
    for seed, state in ((0, "failed"), (1, "completed"), (2, "completed")):
        sweep.job("optimizer.lr=0.1", f"seed={seed}", state=state, config={"seed": seed}, result=scored(90.0 + seed))
    sweep.job("optimizer.lr=0.2", "seed=0", config={"seed": 0}, result=scored(80.0))
    comparison = sweep.compared()
    assert comparison.reasons == ["job 0 failed: no reason was recorded"]
    assert comparison.rows[0].marks == ["best", "2 of 3 seeds"]
    assert shown(comparison, "runs") == ["2 of 3", "1"]
    assert not any("seed differs" in note for note in comparison.notes)


def test_seeds_of_other_sweeps_are_not_averaged(tmp_path: Path, real_run: RunFolder):
    sweeps = [Sweep(tmp_path / name, real_run) for name in "ab"]
    for sweep in sweeps:
        for seed in (1, 2):
            sweep.job(f"seed={seed}", config={"seed": seed})
    rows = compare(gather([str(sweep.folder) for sweep in sweeps])).rows
    assert sorted(len(row.jobs) for row in rows) == [2, 2]


@pytest.mark.parametrize(("second", "is_doubted"), [((89.0, 92.0), True), ((79.0, 81.0), False)])
def test_rows_that_chance_may_have_ordered_are_doubted(sweep: Sweep, second: tuple, is_doubted: bool):
    for rate, values in ((0.1, (90.0, 93.0)), (0.2, second)):
        for seed, best in enumerate(values):
            sweep.job(f"optimizer.lr={rate}", f"seed={seed}", config={"seed": seed}, result=scored(best))
    told = [note for note in sweep.compared().notes if "within one standard deviation" in note]
    assert len(told) == is_doubted
    assert all("lr 0.1: 91.50 ± 2.12 % (n = 2), lr 0.2: 90.50 ± 2.12 % (n = 2)" in note for note in told)


def test_a_baseline_may_be_any_of_a_rows_jobs(sweep: Sweep):
    for parallel, seconds in (("single", 2.0), ("ddp", 1.0)):
        for seed in (0, 1):
            sweep.job(f"parallel={parallel}", f"seed={seed}", config={"seed": seed}, seconds=seconds)
    assert [row.speed_up for row in sweep.compared(baseline="3").rows] == [0.5, 1.0]


def of_version(version: int | None, best: float | None) -> dict[str, object]:
    about = {"label": "accuracy", "unit": "%", "direction": "max"} | ({} if version is None else {"version": version})
    return scored(0.0, scores={"monitor": "val_acc1", "metrics": {"acc1": about}}) | {"best": {"val_acc1": best}}


def test_values_of_two_definitions_are_not_ranked(sweep: Sweep):
    for rate, version, best in ((0.1, None, 90.0), (0.2, 1, 91.0), (0.3, 2, 95.0)):
        sweep.job(f"optimizer.lr={rate}", result=of_version(version, best))
    comparison = sweep.compared()
    assert [row.number for row in comparison.rows] == ["0", "1", "2"]
    assert not any(row.is_best for row in comparison.rows)
    assert (comparison.alike, comparison.caption) == (False, "")
    said = (
        "val_acc1 has several definitions: version 1 in job 0, job 1; version 2 in job 2. Its values are not compared."
    )
    assert said in comparison.notes


def test_a_run_without_the_metric_has_no_definition_of_it():
    had = {"metrics": {"mae": {"version": 2}}}
    assert unlike("val_mae", {"a": had, "b": had, "c": {"metrics": {"acc1": {"version": 1}}}}) is None
    assert unlike("val_mae", {"a": had, "b": {"metrics": {"mae": {}}}}) is not None


def test_values_of_different_samples_are_not_ranked(sweep: Sweep):
    """A sweep over trainer.limit_val, whose evaluations take different samples, or one run of it that takes all."""
    for limit, way in ((1, {"val": "8 of 37 samples"}), (2, {"val": "16 of 37 samples"}), ("null", {})):
        result = of_version(1, 90.0 + len(way))
        result["scores"] |= {"evaluations": way}
        sweep.job(f"trainer.limit_val={limit}", result=result)
    comparison = sweep.compared()
    assert not any(row.is_best for row in comparison.rows)
    assert (
        "val_acc1 has several definitions: version 1 in job 2; version 1 (16 of 37 samples) in job 1; version 1 "
        "(8 of 37 samples) in job 0. Its values are not compared."
    ) in comparison.notes


def test_seeds_of_two_definitions_are_not_averaged(sweep: Sweep):
    for seed, version in enumerate((1, 2)):
        set_config(sweep.job("optimizer.lr=0.1", f"seed={seed}", result=of_version(version, 90.0)), {"seed": seed})
    (row,) = sweep.compared().rows
    assert (row.measures.runs, row.measures.objective, row.measures.metric) == (2, None, None)


def test_a_row_without_the_objective_is_named(sweep: Sweep):
    sweep.job("optimizer.lr=0.1", result=of_version(1, 90.0))
    job = sweep.job("optimizer.lr=0.2", result={"best": None, "metrics": {}, "scores": {"monitor": "val_acc1"}})
    (job / "epochs.csv").unlink()
    assert "Not ranked: val_acc1 has no value in job 1." in sweep.compared().notes


def test_evaluations_are_marked(sweep: Sweep):
    sweep.job("seed=1", seconds=1.0)
    sweep.job("trainer.evaluate_only=true", seconds=1.0)
    assert [row.marks for _, row in sorted(sweep.rows().items())] == [[], ["evaluation"]]
