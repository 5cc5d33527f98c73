"""What converting a model loses on every strategy alike is found: the baseline is compared with the module itself."""

from pathlib import Path

import pytest
import torch
from torch import nn

from manyheads.runner.answers.measure.rank.constructed import Constructed
from manyheads.runner.answers.measure.rank.probe import work
from manyheads.runner.answers.measure.steps_task import ParityFindings, ParityTask, write_task
from manyheads.runner.answers.parity.answer import Parity
from manyheads.runner.answers.parity.parity_plan import judged
from manyheads.runner.checkpoint.rank import dtypes
from manyheads.runner.loop import build
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests import zoo
from tests.checkpoint.test_dtypes import SPIN
from tests.in_process import ALONE, small

TASK = ParityTask(steps=1, tolerance=1e-9)


def of_baseline(path: Path, *overrides: str) -> tuple[RunConfig, ParityFindings]:
    """What the baseline's rank finds, in this process."""
    config, folder = small(*SPIN, *overrides), RunFolder(path)
    folder.write_config(config)
    Heartbeat.create(folder.heartbeat, ranks=1)
    write_task(folder, TASK)
    run = RunConfig.of(config)
    work(run, build.join(run, **ALONE._asdict()), folder, Heartbeat(folder.heartbeat, rank=0))
    return run, folder.read_result()["parity"]


@pytest.mark.parametrize("precision", ["fp64", "bf16", "amp precision.level=O2 precision.dtype=bfloat16"])
def test_conversions_change_nothing_but_rounding(tmp_path, precision):
    _, findings = of_baseline(tmp_path, *f"precision={precision}".split())
    assert findings["differences"] == []


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_imaginary_parts_that_are_dropped_on_every_strategy_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(dtypes.REAL, torch.float64, lambda model: model.to(torch.float64))
    run, findings = of_baseline(tmp_path, "precision=fp64")
    assert {(entry["kind"], entry["name"]) for entry in findings["differences"]} == {
        ("weight", "turn"),
        ("buffer", "eighth"),
    }
    outcome = judged("single", findings, tolerance=TASK.tolerance, run=run)
    answer = Parity.of([outcome], findings, TASK, tmp_path, "single")
    assert answer.exit_code == 3
    answer.show()
    said = " ".join(capsys.readouterr().out.split())
    assert "Cause (single): turn, eighth: not what the model's constructor returned, on every strategy" in said
    assert "different: single against single" in said


def rounded(model: nn.Module) -> None:
    model.head.weight.data = model.head.weight.data.bfloat16().double()


def untied(model: nn.Module) -> None:
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())


def truncated(model: nn.Module) -> None:
    model.body.calls = model.body.calls.to(torch.uint8)


def forgotten(model: nn.Module) -> None:
    del model.body.calls


@pytest.mark.parametrize(
    ("plant", "names"),
    [
        (rounded, {"embedding.weight", "head.weight"}),
        (untied, {"embedding.weight", "head.weight"}),
        (truncated, {"body.calls"}),
        (forgotten, {"body.calls"}),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["conversion", "later"])
def test_whatever_a_model_loses_before_the_first_step_is_named(monkeypatch, plant, names, is_late):
    model, constructed = zoo.Tied(num_classes=5), Constructed()
    model.body.register_buffer("calls", torch.tensor(1000))
    if not is_late:
        monkeypatch.setitem(dtypes.REAL, torch.float64, lambda model: plant(model.double()) or model)
    model = constructed.convert(model, torch.float64)
    model.body.bias.data += 1  # as weights from a file
    constructed.complete(model)
    if is_late:
        plant(model)
    assert {entry["name"] for entry in constructed.changes(model)} == names
