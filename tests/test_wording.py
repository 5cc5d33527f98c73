"""Suggestions for mistyped names."""

import pytest

from manyheads.runner.wording import nearest, similar


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("learning_rate", ["lr", "betas", "weight_decay"], ["lr"]),
        ("wd", ["lr", "weight_decay"], ["weight_decay"]),
        ("alhpa", ["beta", "alpha"], ["alpha"]),
        ("Nett", ["Net", "Neat", "torch"], ["Net", "Neat"]),
        ("batchsize", ["batch_size", "block_size", "root"], ["batch_size", "block_size"]),
        ("zzz", ["lr"], []),
    ],
)
def test_similar(name, names, found):
    assert similar(name, names) == found


def test_as_a_question():
    assert nearest("Nett", ["Net", "torch"]) == " Did you mean Net?"
    assert nearest("zzz", ["Net"]) == ""
