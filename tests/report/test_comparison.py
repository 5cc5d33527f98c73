import json
from pathlib import Path

import pytest

from manyheads.runner.records.run_set import gather
from manyheads.runner.report.columns import file_columns
from manyheads.runner.report.comparison import compare
from tests.report.sweep import Sweep
from tests.sweeps import set_config


def test_the_headline_counts_every_state(sweep: Sweep):
    for state, count in {"completed": 3, "failed": 1, "skipped": 2, "running": 1, "pending": 1}.items():
        for _ in range(count):
            sweep.job("parallel=single", state=state)
    assert sweep.ledger
    with sweep.ledger.locked():
        assert sweep.compared().headline == "3 of 8 jobs completed, 1 failed, 2 skipped, 1 running, 1 pending"


def test_an_empty_sweep_says_so(sweep: Sweep):
    comparison = sweep.compared()
    assert comparison.headline == "no jobs: the sweep is empty"
    assert comparison.rows == []


def test_repeats_are_counted_as_runs(sweep: Sweep):
    sweep.job("parallel=single")
    sweep.job("parallel=single", repeat=2, state="failed")
    comparison = sweep.compared()
    assert comparison.headline == "1 of 2 runs (1 job, repeated) completed, 1 failed"
    assert comparison.rows[0].marks == ["1 of 2 repeats"]
    assert comparison.reasons == ["job 0 (repeat 2) failed: no reason was recorded"]


@pytest.mark.parametrize(
    ("digests", "seeds", "shown"),
    [("aa", (1, 1), "a"), ("ab", (1, 1), "differs"), ("ab", (1, 2), "one for each of 2 seeds")],
)
def test_repeats_of_one_seed_end_with_the_same_weights(sweep: Sweep, digests: str, seeds: tuple, shown: str):
    for repeat, (digest, seed) in enumerate(zip(digests, seeds, strict=True), 1):
        set_config(sweep.job("parallel=ddp", repeat=repeat, result={"weights_sha256": digest}), {"seed": seed})
    comparison = sweep.compared()
    assert comparison.rows[0].digest == shown
    assert any("different weights" in note for note in comparison.notes) == (shown == "differs")


def test_want_of_memory_is_marked(sweep: Sweep):
    sweep.job("parallel=single", state="failed", out_of_memory=True)
    sweep.job("parallel=ddp", split=2, config={"trainer.grad_accumulation": 2})
    sweep.job("parallel=horovod", split=4)
    marks = [row.marks for row in sweep.rows().values()]
    assert marks == [["out of memory"], ["ran with half the micro-batch"], ["ran with 1/4 of the micro-batch"]]


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        ("host", "elsewhere", "Different host"),
        ("devices", ["NVIDIA H200"], "Different GPUs"),
        ("versions", {"torch": "2.0.0"}, "Different torch"),
        ("commit", "0" * 40, "Different commit of manyheads"),
    ],
)
def test_another_place_is_told(sweep: Sweep, key: str, value: object, note: str):
    for number in range(3):
        path: Path = sweep.job(f"optimizer.lr=0.{number + 1}") / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    notes = [text for text in sweep.compared().notes if text.startswith(note)]
    if key == "devices":  # a CPU run has none to differ from
        assert notes == []
    else:
        assert len(notes) == 1
        assert "the others" in notes[0]
        assert "job 2" in notes[0]


def test_threads_are_those_of_all_ranks(sweep: Sweep):
    sweep.job("parallel=single", config={"launcher.threads_per_rank": 2})
    sweep.job("parallel=ddp", config={"launcher.threads_per_rank": 1}, ranks=2)
    assert not any("threads" in note for note in sweep.compared().notes)
    sweep.job("parallel=horovod", config={"launcher.threads_per_rank": 4}, ranks=2)
    assert any("CPU threads of all ranks" in note for note in sweep.compared().notes)


def test_rows_stand_by_what_they_are_compared_with(sweep: Sweep):
    for parallel in ("single", "ddp"):
        for batch in (8, 16):
            sweep.job(f"parallel={parallel}", f"data.batch_size={batch}")
    assert [row.number for row in sweep.compared().rows] == ["0", "2", "1", "3"]


def test_a_reason_is_told_once(sweep: Sweep):
    for reason in ("no GPU", "no GPU", "no Horovod"):
        sweep.job("parallel=ddp", state="skipped", reason=reason)
    assert sweep.compared().reasons == ["jobs 0, 1 skipped: no GPU", "job 2 skipped: no Horovod"]


def test_of_loose_runs_every_key_that_differs_is_named(sweep: Sweep):
    first, second = sweep.job("parallel=single"), sweep.job("parallel=ddp", ranks=2)
    paths = [str(first), str(second)]
    assert not any("differ in" in note for note in compare(gather(paths)).notes)
    set_config(second, {"optimizer": "adam", "trainer.label_smoothing": 0.1, "checkpoint.every": 5})
    told = "The runs differ in optimizer.name, trainer.label_smoothing."
    assert [note for note in compare(gather(paths)).notes if "differ in" in note] == [told]


@pytest.mark.parametrize(("seconds", "ranks", "is_told"), [(1.0, 2, True), (1.7, 2, False), (1.0, 1, False)])
def test_more_than_the_ranks_share_is_doubted(sweep: Sweep, seconds: float, ranks: int, is_told: bool):
    sweep.job("parallel=single", seconds=3.0)
    sweep.job("parallel=ddp", seconds=seconds, ranks=ranks)
    told = "Job 1 scales better than linearly. Was the machine busy while the baseline ran?"
    assert (told in sweep.compared().notes) == is_told


def test_a_rank_for_which_others_waited_is_named(sweep: Sweep):
    slow = {"rank": 1, "intervals": 8, "of": 9, "seconds": 12.0, "part": "compute", "cause": ""}
    sweep.job("parallel=ddp", ranks=2, result={"slow_ranks": [slow]})
    told = "Job 0: the other ranks waited for rank 1, always (in 8 of 9 intervals, for 12.0 s), mostly computing."
    assert told in sweep.compared().notes


def test_what_is_doubted_is_named_as_it_is_called(sweep: Sweep):
    folders = [sweep.job(f"parallel={name}", seconds=3.0 / n**2, ranks=n) for n, name in ((1, "single"), (2, "ddp"))]
    folders[1] = folders[1].rename(folders[1].with_name("With_Capitals"))
    assert any(f"Job {folders[1]} scales better" in note for note in compare(gather([*map(str, folders)])).notes)


def test_folds_are_one_row_with_their_mean(sweep: Sweep):
    for model, scores in (("small_cnn", (90.0, 94.0)), ("resnet18", (80.0, 84.0))):
        for fold, score in enumerate(scores):
            sweep.job(
                f"model={model}",
                f"data.fold={fold}",
                config={"data.folds": 2},
                result={"metrics": {"val_acc1": score}, "weights_sha256": f"{model}{fold}"},
            )
    comparison = sweep.compared()
    assert [len(row.jobs) for row in comparison.rows] == [2, 2]
    assert [row.values for row in comparison.rows] == [{"model": "small_cnn"}, {"model": "resnet18"}]
    assert [row.measures.metric for row in comparison.rows] == [92.0, 82.0]
    assert [row.digest for row in comparison.rows] == ["one for each of 2 folds"] * 2


def test_a_job_that_was_predicted_is_compared_with_that(sweep: Sweep):
    folder = sweep.job("parallel=ddp", ranks=2, result={"samples_per_second": 4000.0})
    known = {"seconds": 0.015, "low": 0.014, "high": 0.016, "batch": 48, "network": "10gbe", "device": "cpu"}
    path: Path = folder / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "predicted": {**known, "is_alike": False}}))
    sweep.job("parallel=single")
    comparison = sweep.compared()
    (note,) = [each for each in comparison.notes if "predicted" in each]
    assert note.startswith("Job 0 (ddp): 15 ms per update were predicted for cpu over 10gbe and 12 measured, outside")
    assert note.endswith("another number of ranks per machine (prediction +25.0 %).")
    column = next(each for each in file_columns(comparison) if each.name == "prediction_error")
    assert [column.value(row) for row in comparison.rows] == [pytest.approx(0.25), None]
