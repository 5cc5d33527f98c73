"""The order of a sampler: the same for all who ask, checked before the first update, and audited."""

import random
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler

from manyheads.runner.data.rank.sampling.drawn_order import DrawnOrder
from manyheads.runner.errors import ConfigurationError, ExitCode
from tests.in_process import attempt, small, train, weights
from tests.loop.test_session import killed_after
from tests.optional_wings import audit

SAMPLES, BATCH = 24, 4
EVERY = np.arange(SAMPLES)


class Uneven:
    """A third of the samples twice, in an order drawn by all three generators. ``seed``: a key of data.sampler."""

    def __init__(self, samples: Any, seed: int = 0):
        self.count, self.seed, self.epoch = len(samples), seed, -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self):
        third = self.count // 3
        rest = torch.randperm(self.count)[: self.count - 2 * third].tolist()
        drawn = [*range(third), *range(third), *rest]
        random.shuffle(drawn)
        np.random.shuffle(drawn)
        return iter(drawn)


class Redrawn:
    """Samples whose content depends on the epoch."""

    def __init__(self, split: str):
        self.targets, self.split, self.epoch = [number % 3 for number in range(80)], len(split), 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int):
        image = np.random.default_rng([index, self.split, self.epoch]).random((3, 8, 8), np.float32)
        return torch.from_numpy(image), self.targets[index]


def order(sampler: Any) -> DrawnOrder:
    return DrawnOrder(sampler, samples=SAMPLES, batch_size=BATCH, seed=3, name="mine")


@pytest.mark.parametrize(
    "build",
    [
        lambda: Uneven(range(SAMPLES)),
        lambda: RandomSampler(range(SAMPLES), replacement=True),
        lambda: BatchSampler(RandomSampler(range(SAMPLES)), BATCH, drop_last=False),
    ],
)
def test_whoever_asks_for_an_epoch_gets_the_same_samples(build):
    one, other = order(build()), order(build())
    torch.manual_seed(5)
    before = torch.get_rng_state()
    last = other.at(4, EVERY)
    assert [*one.at(0, EVERY)] == [*other.at(0, EVERY)] != [*one.at(1, EVERY)]
    assert [*one.at(4, EVERY[5:9])] == [*last[5:9]]
    assert torch.equal(torch.get_rng_state(), before)


def sampler(items: Any, length: int | None = None) -> Any:
    class Given(Sampler):
        def __iter__(self):
            return iter(items() if callable(items) else items)

        def __len__(self) -> int:
            return len(items) if length is None else length

    return Given()


GENERATOR = np.random.default_rng(1)
REFUSED = {
    "no length": (iter(range(24)), "needs __iter__, which gives an epoch's samples, and __len__"),
    "none": (sampler([]), "has 0 items by its __len__, and gives none"),
    "too many": (sampler(range(24), 20), "has 20 items by its __len__, and gives more than 20"),
    "too few": (sampler(range(20), 24), "has 24 items by its __len__, and gives 20"),
    "beyond": (sampler([0, 24]), "gives sample 24, and samples are numbered 0 to 23"),
    "batches of another size": (sampler([[0, 1], [2, 3]]), "gives a batch of 2 samples, and data.batch_size is 4"),
    "a longer last batch": (sampler([[0, 1, 2, 3], [4, 5, 6, 7, 8]]), "gives a batch of 5 samples"),
    "fractions": (sampler([0.5, 1.5]), "gives 0.5, which is neither the number of a sample nor a list of them"),
    "a mixture": (sampler([[0, 1, 2, 3], 4]), "gives [0, 1, 2, 3], which is neither the number of a sample"),
    "an empty batch": (sampler([[0, 1, 2, 3], [], [4]]), "gives a batch of 0 samples"),
    "a generator of its own": (sampler(lambda: GENERATOR.permutation(24), 24), "other samples when it is asked twice"),
    "among ranks": (DistributedSampler(range(24), num_replicas=2, rank=0), "divides the samples among ranks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_training_can_use_is_refused(name):
    given, reason = REFUSED[name]
    with pytest.raises(ConfigurationError, match=f"data.sampler=mine.*{re.escape(reason)}"):
        order(given)


def test_an_epoch_of_another_length_is_refused_when_it_begins():
    class Growing(Uneven):
        def __iter__(self):
            return iter(range(len(self)))

        def __len__(self) -> int:
            return 20 if self.epoch < 2 else 21

    grown = order(Growing(range(24)))
    with pytest.raises(ConfigurationError, match="gives 21 samples in epoch 3, and 20 in the first"):
        grown.at(2, EVERY[:4])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("data.sampler=balanced", "data.order=feistel"), "data.order=feistel: data.sampler decides the order"),
        ((f"data.sampler={{_target_: {__name__}.Unheard}}",), r"data.sampler._target_=.*has no Unheard"),
        (
            (f"data.sampler={{_target_: {__name__}.Uneven, size: 3}}",),
            "_target_=.*rejects its arguments.*size",
        ),
    ],
)
def test_mistakes_in_the_key_are_named(tmp_path, options, reason):
    with pytest.raises(ConfigurationError, match=reason):
        attempt(tmp_path, small(*options))


def test_a_killed_run_continues_with_the_samples_that_are_due_and_passes_its_audit(tmp_path):
    """The data set redraws its samples in each epoch, in two loader processes."""
    mine = (f"data._target_={__name__}.Redrawn", f"data.sampler={{_target_: {__name__}.Uneven, seed: 4}}")
    config = small("data=custom", *mine, "data.num_workers=2", "data.num_classes=3", "model.width=2")
    undisturbed = train(tmp_path / "undisturbed", config)
    killed_after(tmp_path / "killed", config, 13)
    resumed = train(tmp_path / "killed", config)
    one, other = weights(undisturbed.trainer), weights(resumed.trainer)
    assert all(torch.equal(one[name], other[name]) for name in one)
    answer = audit(tmp_path / "killed", reads_data=True)
    assert (answer.exit_code, answer.is_drawn, answer.samples) == (ExitCode.DONE, True, 160)
    assert "each update took the samples that data.sampler draws for it, of 80" in answer.lines()
    with pytest.raises(ConfigurationError, match="data.sampler draws from the data"):
        audit(tmp_path / "killed")


def test_samples_that_are_redrawn_are_not_drawn_for_validation(tmp_path):
    mine = ("data=custom", f"data._target_={__name__}.Redrawn", "data.num_classes=3", "data.val_fraction=0.5")
    with pytest.raises(ConfigurationError, match="has set_epoch, which redraws them"):
        attempt(tmp_path, small(*mine))
