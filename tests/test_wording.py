"""Suggestions for mistyped names, durations, refused arguments."""

import argparse

import pytest

from manyheads.runner.app import Parser
from manyheads.runner.errors import Code, ConfigurationError
from manyheads.runner.wording import duration, is_confirmed, loss_text, nearest, similar


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("learning_rate", ["lr", "betas", "weight_decay"], ["lr"]),
        ("wd", ["lr", "weight_decay"], ["weight_decay"]),
        ("alhpa", ["beta", "alpha"], ["alpha"]),
        ("Nett", ["Net", "Neat", "torch"], ["Net", "Neat"]),
        ("batchsize", ["batch_size", "block_size", "root"], ["batch_size"]),
        ("adamW", ["adam", "adamw"], ["adamw"]),
        ("val_acuracy", ["val_loss", "val_acc1", "val_acc5"], ["val_acc1", "val_acc5"]),
        ("nproc", ["nodes", "nproc_per_node"], ["nproc_per_node"]),
        ("dpp", ["ddp", "dp", "fsdp"], ["dp", "ddp"]),
        ("zzz", ["lr"], []),
    ],
)
def test_similar(name, names, found):
    assert similar(name, names) == found


@pytest.mark.parametrize(("seconds", "text"), [(None, ""), (12.4, "12 s"), (185, "3:05 min"), (7385, "2:03:05 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["a", "--nonsense"], Code.UNKNOWN_NAME, ("--nonsense", None, ())),
        (["a", "--runs", "few"], Code.WRONG_VALUE, ("--runs", "few", ())),
        (["a", "--to", "docx"], Code.WRONG_VALUE, ("--to", "docx", ("pdf", "html"))),
        (["a", "--nodes", "0"], Code.MISTAKE, ("--nodes", None, ("an integer of at least 1",))),
        (["a", "--to"], Code.MISTAKE, ("--to", None, ())),
        ([], Code.MISTAKE, ("folder", None, ())),
    ],
)
def test_refused_arguments(arguments, code, expected):
    """What argparse's sentences name, in its own words, which differ among versions of Python."""

    def nodes(text):
        raise argparse.ArgumentTypeError(f"{text} is not allowed. Allowed: an integer of at least 1")

    parser = Parser()
    parser.add_argument("folder")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--to", choices=("pdf", "html"))
    parser.add_argument("--nodes", type=nodes)
    with pytest.raises(ConfigurationError) as refused:
        parser.parse_args(arguments)
    error = refused.value
    assert (error.code, error.key, error.value, error.allowed) == (code, *expected)


def test_as_a_question():
    assert nearest("Nett", ["Net", "torch"]) == " Did you mean Net?"
    assert nearest("zzz", ["Net"]) == ""


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (0.5, "0.5000"),
        (9876.54321, "9876.5432"),
        (3.2e9, "3.2000e+09"),
        (-20_000.0, "-2.0000e+04"),
        (float("nan"), "nan"),
    ],
)
def test_a_large_loss_is_as_short_as_a_small_one(loss, text):
    assert loss_text(loss) == text


def test_an_end_of_the_input_is_a_no(monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", _ended)
    assert is_confirmed("Delete it?") is False


def _ended(question):
    raise EOFError
