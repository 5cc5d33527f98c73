"""Which number a line has, and which file."""

import json

import pytest

from manyheads.runner.answers.judge.command.command_terms import sign_of
from manyheads.runner.answers.judge.command.numbers import finite, printed, text_of, written
from manyheads.runner.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("METRIC loss=0.5", 0.5),
        ("loss: 1e-3", 1e-3),
        ("epoch 1 | loss: 3 | acc: 4\nepoch 2 | loss: 2 | acc: 5", 2),
        ('{"step": 3, "loss": 0.25}', 0.25),
        ('{"loss": null}\nloss=7', 7),
        ('{"val": {"loss": 3}}', None),
        ("'loss': -1.5,", -1.5),
        ("loss 0.3\rloss: 0.4\rdone", 0.4),
        ("\x1b[32mloss\x1b[0m: \x1b[1m0.9\x1b[0m", 0.9),
        ("val_loss: 1\ntrain/loss: 2\nloss_scale: 3\nx.loss: 4", None),
        ("loss: 1.2.3", None),
        ("loss: 12abc", None),
        ("the loss: 0.5.", 0.5),
        ("loss = nan", float("nan")),
        ("iter 10: loss 4.2, time 30ms", 4.2),
        ("epoch 2 loss 0.5", 0.5),
        ("epoch 2 | loss: 3 | val loss: 2", 3),
        ("train loss: 3, val loss: 2", None),
        ("val loss 2", None),
        ("METRIC loss=3 METRIC acc=1", 3),
        ("", None),
    ],
)
def test_the_last_line_that_has_it(tmp_path, text, number):
    console = tmp_path / "console.log"
    console.write_text(text)
    numbers = printed(text_of(console), ["loss"])
    assert numbers == ({} if number is None else {"loss": pytest.approx(number, nan_ok=True)})


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("val_loss", "step 20: train loss 1.7640, val loss 1.8925", 1.8925),
        ("val_loss", "val_loss: 3\nmy_val_loss: 4", 3),
        ("Acc@1", " * Acc@1 12.5 Acc@5 33.4", 12.5),
        ("val_bpb", "---\nval_bpb:          0.997900\ntraining_seconds: 300.1", 0.9979),
    ],
)
def test_lines_of_well_known_scripts(tmp_path, name, text, number):
    console = tmp_path / "console.log"
    console.write_text(text)
    assert printed(text_of(console), [name]) == {name: number}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_number_must_be_finite(value):
    with pytest.raises(ConfigurationError):
        finite({} if value is None else {"loss": value}, ["loss"], where="the output", text="", end="")


def test_a_key_of_a_file(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"val": {"acc": 0.5, "loss": 2}, "name": "x"}))
    assert written(path, "val.acc", ["accuracy"]) == {"accuracy": 0.5}
    assert written(path, "val", ["acc", "loss"]) == {"acc": 0.5, "loss": 2}
    assert written(path, "name", ["acc"]) == {}


@pytest.mark.parametrize(
    ("name", "sign"), [("val_loss", -1), ("val_acc1", 1), ("top5", 1), ("val/bpb", -1), ("score", None), ("5", None)]
)
def test_the_name_says_which_direction_is_better(name, sign):
    assert sign_of(name) == sign
