"""The state of the process's generators."""

import random

import numpy as np
import pytest
import torch

from manyheads.runner.data.rank.rng import GENERATORS, get_state, restored, seed_everything, seed_sample, set_state


def draws() -> tuple[float, float, float]:
    return torch.rand(1).item(), random.random(), float(np.random.rand())


@pytest.mark.parametrize("key", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_seed_sample_settles_every_generator(key):
    seed_sample(key)
    first = draws()
    draws()
    seed_sample(key)
    assert draws() == first
    seed_sample(key ^ 1)
    assert not set(draws()) & set(first)


@pytest.mark.parametrize("generators", [(), ("random",), ("torch", "numpy")])
def test_only_the_named_generators_are_seeded_and_restored(generators):
    seed_sample(5)
    seeded = dict(zip(GENERATORS, draws(), strict=True))
    before = dict(zip(GENERATORS, draws(), strict=True))  # the second numbers
    seed_sample(5)
    draws()
    with restored(generators):
        seed_sample(5, generators)
        within = dict(zip(GENERATORS, draws(), strict=True))
    assert within == {name: (seeded if name in generators else before)[name] for name in GENERATORS}
    after = dict(zip(GENERATORS, draws(), strict=True))
    assert {name for name in GENERATORS if after[name] == before[name]} == {*generators}


def test_seed_everything_takes_any_seed():
    for seed in (0, 1, 2**32, 2**40 + 1):
        seed_everything(seed)
        first = draws()
        seed_everything(seed)
        assert draws() == first


def test_the_state_comes_back_even_through_a_file(tmp_path):
    seed_everything(3)
    np.random.randn()  # NumPy keeps the second number of a pair, random.gauss too
    random.gauss(0, 1)
    torch.save(get_state(), tmp_path / "state.pt")
    expected = draws(), np.random.randn(), random.gauss(0, 1)
    seed_everything(4)
    set_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert (draws(), np.random.randn(), random.gauss(0, 1)) == expected
