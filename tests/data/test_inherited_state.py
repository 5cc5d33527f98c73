"""Data sets whose samples would depend on the number of loader processes."""

import io
import random

import numpy as np
import pytest
import torch

from manyheads.runner.data.rank.build_data import warn_of_inherited
from manyheads.runner.data.samples import DatasetWrapper
from tests.zoo import Noise

HELD = {
    "file": (lambda path: path.open("rb"), "is a file that is already open"),
    "text": (lambda path: path.open(), "is a file that is already open"),
    "numpy": (lambda path: np.random.default_rng(0), "is a random generator of its own"),
    "old": (lambda path: np.random.RandomState(0), "is a random generator of its own"),
    "torch": (lambda path: torch.Generator(), "is a random generator of its own"),
    "python": (lambda path: random.Random(0), "is a random generator of its own"),
    "bytes": (lambda path: io.BytesIO(), None),
    "array": (lambda path: np.zeros(3), None),
}


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_loader_processes_inherit_is_named(tmp_path, capsys, kind, num_workers):
    (tmp_path / "a").touch()
    make, said = HELD[kind]
    samples = Noise(split="train")
    held = make(tmp_path / "a")
    setattr(samples, kind, held)  # whose name is in the message, since the same warning is printed once
    warn_of_inherited(DatasetWrapper(samples), num_workers=num_workers)
    printed = capsys.readouterr().err
    assert (f"Noise.{kind} {said}" in printed) if said and num_workers else not printed
    if hasattr(held, "close"):
        held.close()
