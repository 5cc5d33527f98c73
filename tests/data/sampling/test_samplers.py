"""The samplers by name: what an epoch's samples and batches are."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from manyheads.runner.data.rank.sampling.samplers import Balanced, ByLength, PerClass, Weighted
from manyheads.runner.errors import ConfigurationError

CLASSES = [0] * 900 + [1] * 90 + [2] * 10


class Samples(SimpleNamespace):
    """1,000 samples with attributes."""

    def __len__(self) -> int:
        return 1000


@pytest.fixture(autouse=True)
def _seeded():
    np.random.seed(1)


@pytest.mark.parametrize("targets", [CLASSES, torch.tensor(CLASSES)])
def test_classes_are_drawn_equally_often(targets):
    drawn = [CLASSES[number] for _ in range(20) for number in Balanced(Samples(targets=targets))]
    counts = np.bincount(drawn) / len(drawn)
    assert len(drawn) == 20_000
    assert np.abs(counts - 1 / 3).max() < 0.015  # 4.5 standard errors


def test_samples_are_drawn_in_proportion_to_their_weights():
    weights = np.zeros(1000)
    weights[[3, 700]] = 1, 3
    drawn = [number for _ in range(20) for number in Weighted(Samples(weights=weights))]
    assert {*drawn} == {3, 700}
    assert abs(drawn.count(700) / len(drawn) - 0.75) < 0.015


def test_a_batch_has_several_samples_of_each_of_its_classes():
    targets = np.arange(1000) % 40
    targets[:39] = 39  # so that some classes have one sample less, and this one more
    batches = [*PerClass(Samples(targets=targets), batch_size=32, per_class=4)]
    assert len(batches) == len(PerClass(Samples(targets=targets), batch_size=32)) == 31
    for batch in batches:
        _, counts = np.unique(targets[batch], return_counts=True)
        assert counts.tolist() == [4] * 8
        assert len({*batch}) == 32
    few = [*PerClass(Samples(targets=CLASSES), batch_size=48, per_class=16)]
    assert all(np.bincount(np.array(CLASSES)[batch]).tolist() == [16] * 3 for batch in few)


def test_batches_have_similar_lengths_and_an_epoch_each_sample_once():
    lengths = np.random.RandomState(2).randint(1, 500, size=1000)
    batches = [*ByLength(Samples(lengths=lengths), batch_size=16, batches=20)]
    assert len(batches) == len(ByLength(Samples(lengths=lengths), batch_size=16)) == 63
    assert sorted(number for batch in batches for number in batch) == [*range(1000)]
    assert [len(batch) for batch in batches] == [16] * 62 + [8]
    spread = np.mean([np.ptp(lengths[batch]) for batch in batches[:-1]])
    assert spread < 50 < np.ptp(lengths[:16])
    longest = [lengths[batch].max() for batch in batches[:-1]]
    assert longest != sorted(longest)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no weights": (Weighted, {}, "data.sampler=weighted needs the weights of the samples"),
    "negative": (Weighted, {"weights": [-1] * 1000}, "must be finite, at least 0, and not all 0"),
    "too few": (Weighted, {"weights": [1]}, "needs the weights of the samples"),
    "values": (Balanced, {"targets": np.linspace(0, 1, 1000)}, "targets are not class numbers"),
    "masks": (Balanced, {"targets": np.zeros((1000, 2), int)}, "a single number in targets"),
    "no lengths": (ByLength, {"batch_size": 8}, "data.sampler=by_length needs the lengths"),
    "odd": (PerClass, {"targets": CLASSES, "batch_size": 10}, "data.batch_size=10: .*a multiple of 4 up to 12"),
    "many classes": (PerClass, {"targets": CLASSES, "batch_size": 16}, "samples have 3 classes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_data_lacks_is_named(name):
    kind, given, reason = REFUSED[name]
    arguments = {key: given[key] for key in given if key == "batch_size"}
    samples = Samples(**{key: value for key, value in given.items() if key != "batch_size"})
    with pytest.raises(ConfigurationError, match=reason):
        kind(samples, **arguments)
