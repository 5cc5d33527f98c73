import json
import math
import shutil
from types import SimpleNamespace

import pytest

from manyheads.runner.commands.reproduce.recorded import farthest, pairs, read_past, unlike_scores
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.rounding import departure, is_early
from manyheads.runner.run.run_folder import RunFolder


@pytest.fixture
def run(finished_run, tmp_path):
    shutil.copytree(finished_run.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_finished_run_is_read(run):
    past = read_past(run.path)
    assert past.result["steps"] == 2
    assert [*past.steps["step"]] == [1, 2]
    assert past.config["trainer"]["max_steps"] == 2


def test_a_moved_one_too(run):
    run.path.rename(run.path.with_name("moved"))
    assert read_past(run.path.with_name("moved")).result["status"] == "completed"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: shutil.rmtree(run.path), "is not a folder"),
        (lambda run: run.config.unlink(), "holds no run"),
        (lambda run: run.config.write_text("format: 3\nseed: 1"), "is not a run config: it lacks model, data"),
        (lambda run: (run.path / "ledger.jsonl").write_text("{}\n"), "is a sweep. Name one of its runs"),
        (lambda run: run.provenance.unlink(), "was never started"),
        (lambda run: run.provenance.write_text("{"), "cannot be read"),
        (lambda run: run.result.unlink(), "has not ended.* python -m runner resume"),
        (lambda run: run.result.write_text("[]"), "cannot be read"),
        (lambda run: edit(run.result, status="failed"), "is not complete: failed after 2 steps"),
        (lambda run: edit(run.result, status="interrupted"), "python -m runner resume"),
        (lambda run: edit(run.result, files=None), "has no digests"),
    ],
)
def test_what_is_no_finished_run_is_refused(run, damage, message):
    damage(run)
    with pytest.raises(ConfigurationError, match=message):
        read_past(run.path)


@pytest.mark.parametrize("name", ["run.yaml", "provenance.json", "steps.csv", "epochs.csv"])
def test_an_edited_file_is_named(run, name):
    (run.path / name).write_text((run.path / name).read_text() + "\n")
    with pytest.raises(ConfigurationError, match=rf"was edited after it ended \({name};"):
        read_past(run.path)


def test_a_missing_or_added_file_is_named(run):
    run.steps.unlink()
    run.code_diff.unlink(missing_ok=True)
    run.code_diff.write_text("+ something")
    with pytest.raises(ConfigurationError, match=r"steps.csv is missing"):
        read_past(run.path)


def tables(losses, *, every=10, first=None, **epochs):
    steps = [float(every * (row + 1)) for row in range(len(losses))]
    return SimpleNamespace(
        steps={"step": steps, "loss": list(losses), "grad_norm": [1.0] * len(losses)},
        result={"scores": {"metrics": {"acc1": {"unit": "%"}}}},
        epochs={"step": [], "train_loss": [], "val_loss": [], "val_acc1": [], "val_acc5": [], **epochs},
    )


def test_the_same_tables_are_exactly_the_same():
    found = pairs(tables([2.0, 1.0]), tables([2.0, 1.0]))
    assert [(pair.what, pair.step) for pair in found] == [
        ("loss", 10), ("grad_norm", 10), ("loss", 20), ("grad_norm", 20)
    ]  # fmt: skip
    assert all(pair.exact and pair.relative == 0 for pair in found)


def test_the_first_departure_and_the_largest():
    found = pairs(tables([2.0, 2.0, 2.0]), tables([2.0, 2.002, 2.2]))
    first = departure(found, tolerance=1e-4)
    assert (first.what, first.step, first.relative) == ("loss", 20, pytest.approx(1e-3, rel=1e-2))
    assert str(first) == "loss at step 20: 2.002 where 2 was recorded"
    assert farthest(found).step == 30
    assert departure(found, tolerance=1) is None


@pytest.mark.parametrize(
    ("a", "b", "relative"), [(math.nan, 1.0, math.inf), (1.0, math.inf, math.inf), (math.inf, math.inf, 0)]
)
def test_values_that_are_not_finite(a, b, relative):
    found = [pair for pair in pairs(tables([1.0, a]), tables([1.0, b])) if pair.what == "loss"]
    assert found[1].relative == relative


def test_what_neither_has_measured_is_left_out():
    assert not [pair for pair in pairs(tables([math.nan]), tables([math.nan])) if pair.what == "loss"]


def test_a_value_that_nears_zero_is_measured_against_a_hundredth_of_its_first():
    found = pairs(tables([1.0, 1e-9]), tables([1.0, 2e-9]))
    assert farthest(found).relative < 1e-6


def test_rows_over_other_updates_are_not_compared():
    assert {pair.step for pair in pairs(tables([1.0] * 4, every=5), tables([2.0] * 2, every=10))} == set()
    assert {pair.step for pair in pairs(tables([1.0] * 4), tables([1.0] * 2))} == {10, 20}


def test_a_resumed_runs_first_row_began_in_the_recorded_run():
    recorded, now = tables([3.0, 2.0, 1.0]), tables([9.0, 2.0, 1.0])
    now.steps = {name: values[1:] for name, values in now.steps.items()}
    assert {pair.step for pair in pairs(recorded, now, resumed=True)} == {20, 30}
    assert {pair.step for pair in pairs(recorded, now)} == {30}


def test_epochs_are_compared_where_they_end_at_the_same_step():
    ends = {"step": [22.0, 44.0], "train_loss": [1.0, 1.0], "val_acc5": [100.0, 100.0], "val_samples": [359.0, 359.0]}
    recorded = tables([], **ends, val_loss=[2.0, 1.0], val_acc1=[50.0, 60.0])
    cut = {**ends, "step": [22.0, 30.0]}
    found = pairs(recorded, tables([], **cut, val_loss=[2.2, 1.0], val_acc1=[50.0, 0.0]))
    assert {pair.step for pair in found} == {22}
    assert farthest(found).what == "val_loss"


@pytest.mark.parametrize(("samples_apart", "differs"), [(0, False), (1, False), (2, True)])
def test_one_sample_may_fall_to_the_other_side(samples_apart, differs):
    ends = {"step": [22.0], "train_loss": [1.0], "val_loss": [1.0], "val_acc5": [100.0], "val_samples": [359.0]}
    recorded = tables([], **ends, val_acc1=[100 * 300 / 359])
    found = pairs(recorded, tables([], **ends, val_acc1=[100 * (300 + samples_apart) / 359]))
    assert bool(farthest(found).relative) == differs


@pytest.mark.parametrize(
    ("step", "relative", "since", "early"),
    [(10, 2e-3, 0, True), (20, 2e-3, 0, True), (50, 2e-3, 0, False), (50, 2e-3, 44, True), (60, math.inf, 0, True)],
)
def test_when_rounding_could_not_have_done_it(step, relative, since, early):
    found = pairs(tables([1.0] * 6, every=step // 1 if step == 1 else 10), tables([1.0] * 6))
    pair = next(p for p in found if p.step == step and p.what == "loss")
    pair = pair.__class__(**{**vars(pair), "relative": relative, "row": min(pair.row, 4)})
    assert is_early(pair, tolerance=1e-3, since=since) == early


def test_values_of_another_definition_are_not_compared():
    first, second = (tables([2.0], val_loss=[1.0], val_acc1=[acc], step=[10.0]) for acc in (50.0, 60.0))
    for run, version in ((first, 1), (second, 2)):
        run.result["metrics"] = {"val_acc1": 50.0, "val_samples": 100}
        run.result["scores"] = {"metrics": {"acc1": {"version": version}}}
    assert "val_acc1" not in {pair.what for pair in pairs(first, second)}
    assert unlike_scores(first.result, second.result)["val_acc1"] == (
        "val_acc1 has several definitions: version 1 in the recorded run; version 2 in the repetition. Its values are "
        "not compared."
    )
    assert "val_acc1" in {pair.what for pair in pairs(first, first)}
