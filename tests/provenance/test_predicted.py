"""What ``scale`` predicted of a run is found when it starts, and compared with what it took."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance import predicted
from manyheads.runner.run.json_types import PredictedJson, ProvenanceJson, ResultJson
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import typed

ON_FOUR = ("parallel=ddp", "launcher.nproc_per_node=4", "data.batch_size=48", "trainer.device=cpu")
RESULT = ResultJson(status="completed", samples_per_second=4000.0)  # 12 ms for 48 samples


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kept(run: RunConfig, devices: int = 4, **changes: Any) -> PredictedJson:
    batch = run.data.batch_size
    known: dict[str, Any] = {"seconds": 0.0126, "low": 0.011, "high": 0.014, "start": 1, "per_machine": 1}
    known |= {"network": "10gbe", "device": "cpu", "devices": devices, "batch": batch}
    found = PredictedJson(subject=predicted.subject(run, devices=devices, batch=batch), **{**known, **changes})
    predicted.keep([found])
    return found


def test_a_run_with_the_same_updates_finds_the_newest_prediction() -> None:
    run = typed(*ON_FOUR)
    assert predicted.of_run(run) is None
    kept(run, seconds=1.0)
    kept(run)
    other = typed(*ON_FOUR, "trainer.epochs=3", "seed=5", "optimizer.lr=0.3", "launcher=torchrun", "name=x")
    found = predicted.of_run(other)
    assert found is not None
    assert (found["seconds"], found["network"], found["is_alike"]) == (0.0126, "10gbe", False)


@pytest.mark.parametrize(
    "changes",
    [
        ["data.batch_size=96"],
        ["launcher.nproc_per_node=2"],
        ["model.width=8"],
        ["parallel.bucket_cap_mb=5"],
        ["parallel=zero1"],
        ["trainer.grad_accumulation=2"],
        ["precision=bf16"],
        ["parallel=single", "launcher.nproc_per_node=1"],
    ],
)
def test_a_run_with_other_updates_finds_none(changes: list[str]) -> None:
    kept(typed(*ON_FOUR))
    names = {each.partition("=")[0] for each in changes}
    run = typed(*[each for each in ON_FOUR if each.partition("=")[0] not in names], *changes)
    assert predicted.of_run(run) is None


def test_lines_of_others_do_not_count() -> None:
    run = typed(*ON_FOUR)
    kept(run)
    line = json.loads(predicted.LEDGER.read_text())
    forged = {**line, "content": {**line["content"], "seconds": 9.0}}
    lines = [json.dumps(forged), "[]", "{", '{"content": 3}', '{"content": {}, "seal": null}', "\x00"]
    predicted.LEDGER.write_text("\n".join([json.dumps(line), *lines]) + "\n")
    found = predicted.of_run(run)
    assert found is not None
    assert found["seconds"] == 0.0126
    assert predicted.record() is None


def test_what_a_predicted_run_took_is_compared_and_counted(tmp_path: Path) -> None:
    run = typed(*ON_FOUR)
    kept(run, per_machine=4)
    for name, speed in (("one", 4000.0), ("two", 2000.0), ("two", 2400.0)):  # the last was resumed
        folder = RunFolder(tmp_path / name)
        folder.write_config(dict(run.written))
        found = predicted.of_run(run)
        folder.write_json(folder.provenance, {"predicted": found})
        folder.write_json(folder.result, {**RESULT, "samples_per_second": speed})
        predicted.note(folder)
    outcome = predicted.outcome(ProvenanceJson(predicted=found), RESULT)
    assert outcome is not None
    assert outcome.measured == pytest.approx(0.012)
    assert outcome.error == pytest.approx(0.05)
    assert outcome.is_within
    assert outcome.is_alike
    assert "within the interval of 11 to 14" in outcome.describe()
    assert "outside" in replace(outcome, measured=0.02).describe()
    record = predicted.record()
    assert record is not None
    assert (record.runs, record.within) == (2, 1)
    assert record.mean_error == pytest.approx((0.05 + 0.37) / 2)


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"seconds": 0.0}, {}),
        ({"batch": 0}, {}),
        ({"low": float("nan")}, {}),
        ({"high": None}, {}),
        ({}, {"samples_per_second": float("inf")}),
        ({}, {"samples_per_second": None}),
        ({}, {"status": "failed"}),
    ],
)
def test_a_folder_without_sound_numbers_has_no_outcome(changes: dict[str, Any], result: dict[str, Any]) -> None:
    known: dict[str, Any] = {"seconds": 1.0, "low": 0.9, "high": 1.1, "batch": 8, "network": "x", "device": "y"}
    sound = ProvenanceJson(predicted={**known, "is_alike": True})  # type: ignore[typeddict-item]
    assert predicted.outcome(sound, RESULT) is not None
    wrong = ProvenanceJson(predicted={**known, "is_alike": True, **changes})  # type: ignore[typeddict-item]
    assert predicted.outcome(wrong, ResultJson(**{**RESULT, **result})) is None  # type: ignore[typeddict-item]


def test_a_run_without_a_prediction_writes_no_ledger(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_config(dict(typed(*ON_FOUR).written))
    folder.write_json(folder.provenance, {"predicted": None})
    folder.write_json(folder.result, dict(RESULT))
    predicted.note(folder)
    predicted.note(RunFolder(tmp_path / "nowhere"))
    assert not predicted.LEDGER.exists()
