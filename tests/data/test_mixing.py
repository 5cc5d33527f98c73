"""mixup and cutmix: the same whatever ranks and micro-batches there are, and what the papers say."""

import math
import re
from itertools import chain

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.keys import copy_keys, sample_keys
from manyheads.runner.data.order import Shuffle
from manyheads.runner.data.rank.mixing import Mix, Mixing, box, mixed
from manyheads.runner.data.rank.sampler import TrainingSampler
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.classification import Classification
from manyheads.runner.task.rank.losses import BinaryCrossEntropy
from tests.in_process import attempt, rows, small, train, weights
from tests.loop.test_session import killed_after, tables
from tests.loop.test_trainer import assert_same, synthetic

MIXING = Mixing(mixup_alpha=0.4, cutmix_alpha=1.0, mix_prob=0.9, mix_switch_prob=0.5, seed=3)
BOTH = ("trainer.mixup_alpha=0.2", "trainer.cutmix_alpha=1.0")


def all_shares(ranks: int, accumulation: int, size: int = 22) -> list[list[torch.Tensor]]:
    """The mixed inputs, targets and partners' targets of each update of an epoch, put together from all shares."""
    images = torch.arange(101 * 48).view(101, 3, 4, 4).double()
    samplers = [
        TrainingSampler(
            Shuffle(101, seed=3), GlobalBatches(101, batch_size=size, drop_last=False), rank=rank, world_size=ranks,
            accumulation=accumulation, mixing=MIXING,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    requests = zip(*(sampler.epoch(1) for sampler in samplers), strict=True)
    micro_batches = [[found for request in each if (found := entered(images, request))] for each in requests]
    updates = [micro_batches[start : start + accumulation] for start in range(0, len(micro_batches), accumulation)]
    return [[torch.cat(parts) for parts in zip(*chain.from_iterable(update), strict=True)] for update in updates]


def entered(images, request):
    chosen = torch.from_numpy(request.indices.astype(np.int64))
    if not request.count:
        return None
    if request.mix is None:
        return images[chosen], chosen, chosen
    inputs, (_, targets), partners = mixed(request.mix, images[chosen], (images[chosen], chosen))
    assert len(inputs) == len(targets) == request.count
    return inputs, targets, partners.content[1]


@pytest.mark.parametrize("layout", [(2, 1), (1, 2), (3, 1), (2, 3), (5, 1), (7, 2)])
def test_batches_are_the_same_on_any_number_of_ranks_and_micro_batches(layout):
    expected, found = all_shares(1, 1), all_shares(*layout)
    assert len(expected) == len(found) == 5
    for one, other in zip(expected, found, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    _, targets, partners = expected[0]
    assert torch.equal(targets.view(-1, 2).flip(1).flatten(), partners)


def test_an_even_share_needs_nothing_that_is_not_its_own():
    sampler = TrainingSampler(
        Shuffle(96, seed=3),
        GlobalBatches(96, batch_size=24, drop_last=True),
        rank=1,
        world_size=3,
        accumulation=2,
        mixing=MIXING,
    )
    assert all(len(request.indices) == request.count == 4 for request in sampler.epoch(0))


def test_draws_are_of_the_batch_alone_and_follow_the_keys():
    drawn = [MIXING.draw(epoch, update) for epoch in range(4) for update in range(250)]
    assert drawn == [MIXING.draw(epoch, update) for epoch in range(4) for update in range(250)]
    kept = [each for each in drawn if each is not None]
    assert len(kept) / 1000 == pytest.approx(0.9, abs=0.03)
    cut = [each for each in kept if each.box is not None]
    assert len(cut) / len(kept) == pytest.approx(0.5, abs=0.05)
    assert np.mean([each.share for each in cut]) == pytest.approx(0.5, abs=0.05)  # Beta(1, 1)
    assert np.var([each.share for each in cut]) == pytest.approx(1 / 12, rel=0.1)
    blended = [each.share for each in kept if each.box is None]
    assert np.var(blended) == pytest.approx(1 / (4 * 1.8), rel=0.15)  # Beta(0.4, 0.4)


@pytest.mark.parametrize("middle", [(0.5, 0.5), (0.0, 0.99), (0.3, 0.0)])
def test_the_share_of_a_cut_is_that_of_its_pixels(middle):
    rows_, columns, share = box(Mix(0.4, middle), 20, 30)
    image = torch.zeros(20, 30)
    image[rows_, columns] = 1
    assert share == pytest.approx(1 - image.mean().item())
    assert share >= 0.4 - 0.1
    assert (share < 0.5) == (middle == (0.5, 0.5))


def test_the_loop_with_mixup_is_the_handwritten_one_bit_for_bit(tmp_path):
    run = train(tmp_path, small("trainer.mixup_alpha=0.4", "trainer.max_steps=12", "trainer.label_smoothing=0.1"))
    images, targets = synthetic(train=True)
    torch.manual_seed(1)
    model = type(run.parallel.unwrap(run.update.model))(num_classes=3, width=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    mixing = Mixing(mixup_alpha=0.4, cutmix_alpha=0, mix_prob=1, mix_switch_prob=0.5, seed=1)
    for step, request in zip(range(12), run.trainer.train.sampler.epoch(0), strict=False):
        chosen = torch.from_numpy(request.indices.astype("int64"))
        other, share = chosen.view(-1, 2).flip(1).flatten(), mixing.draw(0, step).share
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / 12)) / 2
        logits = model(images[chosen] * share + images[other] * (1 - share))
        losses = [cross_entropy(logits, targets[each], label_smoothing=0.1) for each in (chosen, other)]
        (losses[0] * share + losses[1] * (1 - share)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same(weights(run.trainer), model.state_dict())


def test_accumulation_gives_the_same_weights_and_a_killed_run_resumes_to_the_same(tmp_path):
    options = (*BOTH, "precision=fp64", "data.drop_last=false", "data.train_samples=157", "data.batch_size=6")
    one = train(tmp_path / "one", small(*options))
    two = train(tmp_path / "two", small(*options, "trainer.grad_accumulation=2"))  # of three samples each
    for name, weight in weights(one.trainer).items():
        torch.testing.assert_close(weights(two.trainer)[name], weight, rtol=0, atol=1e-12)
    killed_after(tmp_path / "killed", small(*options, "checkpoint.every=8"), 11)
    assert tables(train(tmp_path / "killed", small(*options, "checkpoint.every=8"))) == tables(one)
    assert float(rows(one.folder.epochs)[-1]["val_acc1"]) > 50


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("+loss.weight=[1,2,3]",), "the loss ignores or weights classes"),
        (("data=diabetes", "task=regression", "model=mlp"), "samples of task=regression cannot be mixed"),
    ],
)
def test_what_cannot_be_mixed_is_refused(tmp_path, overrides, text):
    from tests.in_process import completed_for_here as complete

    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, complete(small("trainer.mixup_alpha=0.2", *overrides)))


def test_repeated_samples_are_augmented_anew_and_are_never_a_pair(tmp_path):
    given = Shuffle(24, seed=3), GlobalBatches(24, batch_size=12, drop_last=True, repeats=3)
    (whole,) = list(TrainingSampler(*given, rank=0, world_size=1, accumulation=1).epoch(0))[:1]
    assert sorted(np.unique(whole.indices, return_counts=True)[1]) == [3] * 4
    assert not (whole.indices[0::2] == whole.indices[1::2]).any()
    keys = copy_keys(sample_keys(3, 0, whole.indices), whole.copies)
    assert len(set(keys.tolist())) == 12
    samplers = [TrainingSampler(*given, rank=rank, world_size=2, accumulation=2) for rank in range(2)]
    parts = [list(sampler.epoch(0))[micro].indices for micro in range(2) for sampler in samplers]
    assert np.array_equal(np.concatenate(parts), whole.indices)
    run = train(tmp_path, small("trainer.aug_repeats=3", *BOTH, "trainer.epochs=1"))
    assert run.trainer.progress.step == 20


def test_binary_cross_entropy_of_class_numbers_is_that_of_each_class():
    torch.manual_seed(0)
    logits, targets = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    wanted = torch.eye(4, dtype=torch.float64)[targets]
    plain = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)
    assert torch.equal(BinaryCrossEntropy()(logits, targets), plain)
    assert torch.equal(BinaryCrossEntropy()(logits, wanted), plain)
    assert BinaryCrossEntropy(sum_classes=True)(logits, targets) == pytest.approx(4 * plain.item())
    smoothed = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted * 0.9 + 0.025)
    torch.testing.assert_close(BinaryCrossEntropy(label_smoothing=0.1)(logits, targets), smoothed)


def test_above_the_threshold_both_classes_of_a_mixed_sample_are_wanted_wholly():
    logits = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    own, other = torch.tensor([0, 1, 2]), torch.tensor([3, 1, 0])
    loss = BinaryCrossEntropy(target_threshold=0.2)
    task = Classification(loss=loss, reduction="auto")
    plain = torch.nn.functional.binary_cross_entropy_with_logits
    classes = torch.eye(4, dtype=torch.float64)
    both = task.mixed_loss(logits, (None, own), (None, other), 0.7)
    assert torch.equal(both, plain(logits, (classes[own] + classes[other]).clamp(max=1)))
    assert torch.equal(task.mixed_loss(logits, (None, own), (None, other), 0.85), plain(logits, classes[own]))
    assert torch.equal(loss(logits, own), plain(logits, classes[own]))


def test_a_run_with_it_learns(tmp_path):
    loss = "loss._target_=manyheads.runner.task.rank.losses.BinaryCrossEntropy"
    run = train(tmp_path, small(loss, "trainer.label_smoothing=0.1", "optimizer.lr=0.3"))
    assert float(rows(run.folder.epochs)[-1]["val_acc1"]) > 60
