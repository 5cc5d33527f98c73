"""Sums and counts."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads.runner.loop import meter as metrics
from manyheads.runner.loop.meter import Meter, Sums, places
from manyheads.runner.parallel.single.rank import Single


@pytest.fixture
def meter() -> Meter:
    return Meter(Single(rank=0, local_rank=0, world_size=1, device_type="cpu"))


def collected(meter: Meter, **how: bool) -> Sums:
    """What was added since the last time."""
    meter.close()
    (sums,), _ = meter.collect({}, **how)
    return sums


def random_batches(classes: int = 10) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(n, classes), torch.randint(classes, (n,))) for n in (8, 8, 3, 1)]


def brute_force(logits: torch.Tensor, targets: torch.Tensor, first: int) -> int:
    order = np.argsort(-logits.numpy(), axis=1)[:, :first]
    return sum(int(target in best) for target, best in zip(targets.tolist(), order.tolist(), strict=True))


@pytest.mark.parametrize("classes", [1, 2, 5, 6, 10])
def test_places_against_brute_force(classes):
    for logits, targets in random_batches(classes):
        found = places(logits, targets).cumsum(0).tolist()
        assert found == [brute_force(logits, targets, first) for first in range(1, 6)]


def test_of_equal_logits_the_first_class_leads_and_nan_is_never_right():
    assert places(torch.zeros(6, 6), torch.arange(6)).tolist() == [1, 1, 1, 1, 1]
    assert places(torch.full((2, 3), torch.nan), torch.tensor([0, 2])).tolist() == [0] * 5
    assert places(torch.tensor([[torch.nan, 1.0, 0.0]]), torch.tensor([1])).tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("patience", [metrics.PATIENCE, 2, 1])
@pytest.mark.parametrize("bound", [metrics.BOUND, 100, 1])
def test_means_are_those_over_all_samples_however_they_are_batched(meter, monkeypatch, bound, patience):
    monkeypatch.setattr(metrics, "BOUND", bound)
    monkeypatch.setattr(metrics, "PATIENCE", patience)
    batches = random_batches()
    for logits, targets in batches:
        meter.add(cross_entropy(logits, targets), logits, targets, len(targets))
        assert len(meter._seen) < patience
        assert sum(seen.logits.numel() for seen in meter._seen) <= bound
    sums = collected(meter)
    logits, targets = torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])
    means = sums.means("val")
    assert means["val_loss"] == pytest.approx(cross_entropy(logits.double(), targets).item(), rel=1e-6)
    assert means["val_acc1"] == 100 * brute_force(logits, targets, 1) / 20
    assert means["val_acc5"] == 100 * brute_force(logits, targets, 5) / 20


def test_collect_starts_anew_and_passes_on_what_it_is_given(meter):
    logits, targets = random_batches()[0]
    meter.add(cross_entropy(logits, targets), logits, targets, 8)
    meter.note_corrupt(2)
    meter.close(seconds=1.5, data_seconds=0.5)
    (sums,), flags = meter.collect({"SIGINT": 0.0, "SIGTERM": 1.0})
    assert (sums.count, sums.judged, sums.corrupt, sums.seconds, sums.data_seconds) == (8, 8, 2, 1.5, 0.5)
    assert flags == {"SIGINT": 0.0, "SIGTERM": 1.0}
    assert collected(meter) == Sums()
    assert meter.collect({}) == ([], {})


@pytest.mark.parametrize("patience", [metrics.PATIENCE, 3])
def test_each_interval_has_its_own_batches(meter, monkeypatch, patience):
    monkeypatch.setattr(metrics, "PATIENCE", patience)
    batches = random_batches()
    for first, last in ((0, 2), (2, 2), (2, 4)):
        for logits, targets in batches[first:last]:
            meter.add(cross_entropy(logits, targets), logits, targets, len(targets))
        meter.note_corrupt(last)
        meter.close(seconds=first)
    found, _ = meter.collect({})
    assert [sums.count for sums in found] == [16, 0, 4]
    assert [sums.corrupt for sums in found] == [2, 2, 4]
    assert [sums.seconds for sums in found] == [0, 2, 2]
    for sums, part in zip(found, (batches[:2], [], batches[2:]), strict=True):
        losses = [cross_entropy(*each).item() * len(each[1]) for each in part]
        assert sums.loss == pytest.approx(sum(losses))
    assert sum(sums.judged for sums in found) == 20


def test_accuracies_may_follow_later(meter):
    (logits, targets), (more, theirs), *_ = random_batches()
    meter.add(cross_entropy(logits, targets), logits, targets, 8)
    first = collected(meter, judge=False)
    assert (first.count, first.judged) == (8, 0)
    meter.add(cross_entropy(more, theirs), more, theirs, 8)
    second = collected(meter)
    assert (second.count, second.judged) == (8, 16)
    assert second.correct1 == brute_force(torch.cat([logits, more]), torch.cat([targets, theirs]), 1)


def test_accuracies_are_there_in_time_for_the_terminal(meter, monkeypatch):
    monkeypatch.setattr(metrics, "JUDGE_SECONDS", 0)
    logits, targets = random_batches()[0]
    meter.add(cross_entropy(logits, targets), logits, targets, 8)
    assert collected(meter, judge=False).judged == 8


def test_targets_that_are_no_class_numbers_have_a_loss_and_no_accuracy(meter):
    meter.add(torch.tensor(2.0), torch.zeros(4, 3), torch.full((4, 3), 1 / 3), 4)
    assert collected(meter).means("train") == {"train_loss": 2.0, "train_acc1": None, "train_acc5": None}


def test_nothing_has_no_mean():
    assert Sums().means("val") == {"val_loss": None, "val_acc1": None, "val_acc5": None}


def test_sums_add_up():
    total = Sums(loss=1, count=2, correct1=1, correct5=2, judged=2, corrupt=0, seconds=0.5, data_seconds=0.25)
    total.add(Sums(loss=3, count=6, correct1=2, correct5=4, judged=6, corrupt=1, seconds=1.5, data_seconds=0.75))
    assert total == Sums(4, 8, 3, 6, 8, 1, 2, 1)  # in the order of the fields
    assert total.means("x")["x_loss"] == 0.5


def test_many_small_losses_are_not_rounded_away(meter):
    logits, targets = torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)
    meter.add(torch.tensor(2.0**30), logits, targets, 1)
    for _ in range(1000):
        meter.add(torch.tensor(1.0), logits, targets, 1)
    assert collected(meter).loss == 2.0**30 + 1000
