"""What is predicted of a run, from a measurement that is given."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

import manyheads
from manyheads.runner.answers.measure.subject import Subject
from manyheads.runner.answers.scale import api, scale_run
from manyheads.runner.answers.scale.answer import Scale
from manyheads.runner.answers.scale.measured_step import MeasuredStep, Updates, between
from manyheads.runner.answers.scale.plan import Plan
from manyheads.runner.answers.scale.recorded import Checkpoints
from manyheads.runner.answers.scale.scale_run import ScaleTerms, scale
from manyheads.runner.answers.scale.simulator import catalog
from manyheads.runner.answers.scale.simulator.predict import Measured
from manyheads.runner.answers.scale.simulator.replay import Assumptions
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.answers.scale.targets import counts, memory_of, target_of
from manyheads.runner.commands import scale as command
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.predicted import Record
from manyheads.runner.run.child_command import ChildEnd
from manyheads.runner.run.json_schema import to_json
from tests.in_process import small, typed

UNITS = tuple(Unit(2.5e7, 0.25, 1e5) for _ in range(4))
LARGE = MeasuredStep(DeviceUpdate(UNITS, 0.05, 0.1, optimizer=0.01, samples=8), Updates(0.16), Path("large"))
SMALL = MeasuredStep(DeviceUpdate(UNITS, 0.02, 0.04, optimizer=0.01, samples=2), Updates(0.07), Path("small"))
EARLIER = Record(4, 0.062, 3)
DDP = ("parallel=ddp", "launcher.nproc_per_node=2")


def run_of(*overrides: str) -> RunConfig:
    return RunConfig.of(small(*overrides))


def plan(
    *devices: int,
    network: str = "10gbe",
    price: float | None = None,
    batch: str = "run",
    checkpoints: Checkpoints | None = None,
) -> Plan:
    run = run_of(*DDP)
    targets = [target_of(run, count, batch) for count in devices]
    cluster = catalog.cluster(catalog.device("cpu"), catalog.network(network))
    memory: list[int | None] = [10**9 * count for count in devices]
    start = Measured(1, 0.16, LARGE.step)
    return Plan(run, targets, cluster, 3.5e9, SMALL, LARGE, memory, price, start, checkpoints=checkpoints)


def answer(found: Plan) -> Scale:
    others, unpredicted = found.others()
    known = found.rows(), others, unpredicted, EARLIER, found.checkpoints, found.assumptions.spread
    return Scale(Path("x"), "ddp", "10gbe", "cpu", 0.16, 0.5, *known)


def test_one_device_takes_what_was_measured() -> None:
    (row,) = plan(1).rows()
    assert row.seconds == pytest.approx(0.16, rel=1e-3)
    assert row.efficiency == pytest.approx(1, rel=1e-3)
    assert row.samples_per_second == pytest.approx(8 / 0.16, rel=1e-3)


def test_a_batch_that_is_divided_has_smaller_micro_batches() -> None:
    """On a network without cost, four devices take what the small micro-batch took, and wait for the slowest."""
    one, four = plan(1, 4, network="ib-ndr-8").rows()
    assert (one.batch, four.batch) == (8, 8)
    assert four.seconds == pytest.approx(0.07, rel=0.15)
    step = between(SMALL, LARGE, 4, factor=1.0)
    assert (step.forward, step.samples) == pytest.approx((0.03, 4))


def test_a_batch_that_grows_keeps_the_micro_batch() -> None:
    one, eight = plan(1, 8, batch="device").rows()
    assert eight.batch == 8 * one.batch
    assert eight.seconds > one.seconds


def test_a_slow_network_is_named_as_what_limits_and_what_would_help() -> None:
    (row,) = plan(8, network="1gbe").rows()
    assert row.limit == "exchange"
    assert "network" in row.help.what
    assert 1.5 < row.help.factor < 2.01
    (fast,) = plan(2, network="ib-ndr-8").rows()
    assert fast.limit == "computing"
    assert "computing" in fast.help.what


def test_cost_and_memory() -> None:
    two, four = plan(2, 4, price=3.0).rows()
    assert two.cost == pytest.approx(3.0 * two.device_hours)
    assert two.device_hours == pytest.approx(2 * 1e6 / two.samples_per_second / 3600)
    assert (two.fits, four.fits) == (True, False)
    assert plan(2).rows()[0].cost is None
    assert answer(plan(2, 4)).exit_code == 3
    assert answer(plan(2)).exit_code == 0


def test_checkpoints_add_to_the_cost_alone() -> None:
    wrote = Checkpoints(10**9, sharded=False, seconds=0.05, batch=8, by_epoch=True, share=1.0)
    (plain,), (row,) = plan(2, price=3.0).rows(), plan(2, price=3.0, checkpoints=wrote).rows()
    assert (plain.checkpoint, row.checkpoint) == (None, 0.05)
    assert (row.seconds, row.low, row.high) == (plain.seconds, plain.low, plain.high)
    assert row.device_hours - plain.device_hours == pytest.approx(2 * 1e6 / 8 * 0.05 / 3600)
    assert row.cost == pytest.approx(3.0 * row.device_hours)


def test_other_strategies_are_predicted_or_it_is_said_why_not() -> None:
    others, unpredicted = plan(2, 4).others()
    assert {"zero1", "fsdp", "horovod", "tensor"} <= {each.parallel for each in others}
    assert all(each.devices == [2, 4] and len(each.efficiency) == 2 for each in others)
    assert unpredicted.keys() == {"single", "replicated"}
    slow, _ = plan(2, 4, batch="device").others()
    assert all(0 < value <= 1.001 for each in slow for value in each.efficiency)


def test_checkpoints_and_slow_ranks_of_the_run_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    wrote = Checkpoints(10**9, sharded=True, seconds=0.05, batch=8, by_epoch=False, share=1.0)
    answer(replace(plan(2, checkpoints=wrote), assumptions=Assumptions(spread=0.04))).show()
    text = " ".join(capsys.readouterr().out.split())
    assert "Checkpoints, of which each rank writes its part, have 1.0 GB" in text
    assert "Checkpoints take 25 ms more for each update" in text
    assert "Ranks differ as in the recorded run: on average, a rank takes 4.0 % of its passes longer than" in text


def test_what_is_shown_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(plan(2, 4, 8, price=2.0))
    found.show()
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "8 devices: computing",
        "What would help most is",
        "is more than the device has",
        "up to 50 % longer",
        "cost",
        "Of 4 predicted runs in outputs/predictions.jsonl, 3 were within their intervals; the mean error is 6.2 %",
    ):
        assert words in text
    assert to_json(found)["rows"][0]["parts"]["computing"] > 0
    svg = found.picture(form="svg")
    assert all(f"<!-- {word}".encode() in svg for word in ("zero1", "ddp, as configured", "devices"))
    assert found.picture(form="png").startswith(b"\x89PNG")


@pytest.mark.parametrize("wrong", ["", "8,", "8;64", "-8", "0", "8,x", "1e3", "100001", "٣"])
def test_wrong_numbers_of_devices_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        counts(wrong)
    assert (refused.value.key, refused.value.value) == ("--devices", wrong)


def test_numbers_of_devices_are_sorted() -> None:
    assert counts("64, 8,8") == [8, 64]


def test_a_batch_that_cannot_be_divided_names_its_key() -> None:
    with pytest.raises(ConfigurationError, match="cannot be divided among 3 devices") as refused:
        target_of(run_of(*DDP), 3, "run")
    assert refused.value.key == "data.batch_size"
    assert target_of(run_of(*DDP), 3, "device").batch == 12


def test_a_model_that_fits_no_such_device_names_the_flag() -> None:
    target = target_of(run_of(*DDP), 2, "run")
    with pytest.raises(ConfigurationError, match=r"tiny has 1\.0 kB, and the run needs at least") as refused:
        memory_of([target], 1e3, "tiny")
    assert refused.value.key == "--device"
    (needed,) = memory_of([target], 1e9, "cpu")
    assert needed is not None
    assert needed > 1000


@pytest.mark.parametrize(
    ("words", "terms", "key"),
    [
        (["parallel=single"], {}, "parallel"),
        (["parallel=ddp", "parallel.compression=powersgd"], {}, "parallel.compression"),
        (["parallel=ddp"], {"network": "100gbit"}, "--network"),
        (["parallel=ddp"], {"device": "b200"}, "--device"),
        (["parallel=ddp"], {"price": -1.0}, "--price"),
        (["parallel=ddp", "trainer.evaluate_only=true", "checkpoint.load=x"], {}, None),
        (["nowhere"], {}, None),
    ],
)
def test_what_cannot_be_predicted_is_refused_before_anything_is_measured(
    words: list[str], terms: dict[str, object], key: str | None
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        scale(words, replace(ScaleTerms("8", "10gbe"), **terms))
    assert key in (None, refused.value.key)


def test_a_run_of_gpus_needs_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    run = typed(*DDP)
    on_gpus = replace(run, trainer=replace(run.trainer, device="cuda"))
    monkeypatch.setattr(scale_run, "subject_of", lambda words, config_dir: Subject(on_gpus, None))
    with pytest.raises(ConfigurationError, match="--device is not set") as refused:
        scale([], ScaleTerms("8", "10gbe"))
    assert refused.value.key == "--device"


def test_python_gets_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer(plan(2, 4))
    asked: list[str] = []

    def call(*words: str) -> ChildEnd:
        asked.extend(words)
        return ChildEnd(found.exit_code, json.loads(json.dumps({"result": to_json(found)})))

    monkeypatch.setattr(api, "call", call)
    assert manyheads.scale(["parallel=ddp"], devices=[2, 4], network="10gbe", price=2.5) == found.rows
    assert asked == ["scale", "parallel=ddp", "--devices", "2,4", "--network", "10gbe", "--price", "2.5"]


@pytest.mark.parametrize(("words", "missing"), [(["--network=1gbe"], "--devices"), (["--devices=2"], "--network")])
def test_devices_and_network_are_needed(words, missing):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(ConfigurationError, match=f"{missing} is not set") as refused:
        command.run(parser.parse_args(words))
    assert refused.value.key == missing
