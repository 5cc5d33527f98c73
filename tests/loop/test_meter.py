"""Sums and counts."""

from functools import reduce
from math import fsum
from operator import add
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads.runner.loop import meter as metrics
from manyheads.runner.loop.meter import Meter, Sums
from manyheads.runner.loop.scores import Scores
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.parallel.rank.single import Single
from manyheads.runner.task.rank.classification import Classification
from manyheads.runner.task.rank.regression import Regression
from tests.task.test_classification import brute_force, random_batches


@pytest.fixture
def scores() -> Scores:
    return Scores(Classification(loss=torch.nn.CrossEntropyLoss(), reduction="auto"))


@pytest.fixture
def meter(scores: Scores) -> Meter:
    return Meter(Single(rank=0, local_rank=0, world_size=1, device_type="cpu"), scores)


def passed(meter: Meter, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor, count: int) -> None:
    """A forward pass over ``count`` samples, whose loss is a mean."""
    meter.add(ForwardResult(loss, count, count, count, meter._scores.observe(logits, (None, targets))))


def statistics(sums: Sums) -> dict[str, Any]:
    return {name: float(value) for name, value in sums.statistics.items()}


def collected(meter: Meter, **how: bool) -> Sums:
    """What was added since the last time."""
    meter.close()
    (sums,), _ = meter.collect({}, **how)
    return sums


@pytest.mark.parametrize("patience", [metrics.PATIENCE, 2, 1])
@pytest.mark.parametrize("bound", [metrics.BOUND, 100, 1])
def test_means_are_those_over_all_samples_however_they_are_batched(meter, scores, monkeypatch, bound, patience):
    monkeypatch.setattr(metrics, "BOUND", bound)
    monkeypatch.setattr(metrics, "PATIENCE", patience)
    batches = random_batches()
    for logits, targets in batches:
        passed(meter, cross_entropy(logits, targets), logits, targets, len(targets))
        assert len(meter._passed) < patience
        assert sum(each.observed.by_task.logits.numel() for each in meter._passed) <= bound
    sums = collected(meter)
    logits, targets = torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])
    means = scores.of("val", sums)
    assert means["val_loss"] == pytest.approx(cross_entropy(logits.double(), targets).item(), rel=1e-6)
    assert means["val_acc1"] == 100 * brute_force(logits, targets, 1) / 20
    assert means["val_acc5"] == 100 * brute_force(logits, targets, 5) / 20


def test_collect_starts_anew_and_passes_on_what_it_is_given(meter):
    logits, targets = random_batches()[0]
    passed(meter, cross_entropy(logits, targets), logits, targets, 8)
    meter.note_corrupt(2)
    meter.close(seconds=1.5, data_seconds=0.5)
    (sums,), flags = meter.collect({"SIGINT": 0.0, "SIGTERM": 1.0})
    assert (sums.count, sums.counted, sums.corrupt, sums.seconds, sums.data_seconds) == (8, 8, 2, 1.5, 0.5)
    assert statistics(sums)["judged"] == 8
    assert flags == {"SIGINT": 0.0, "SIGTERM": 1.0}
    nothing = collected(meter)
    assert nothing.values() == Sums().values()
    assert statistics(nothing) == {"correct1": 0, "correct5": 0, "judged": 0}
    assert meter.collect({}) == ([], {})


@pytest.mark.parametrize("patience", [metrics.PATIENCE, 3])
def test_each_interval_has_its_own_batches(meter, monkeypatch, patience):
    monkeypatch.setattr(metrics, "PATIENCE", patience)
    batches = random_batches()
    for first, last in ((0, 2), (2, 2), (2, 4)):
        for logits, targets in batches[first:last]:
            passed(meter, cross_entropy(logits, targets), logits, targets, len(targets))
        meter.note_corrupt(last)
        meter.close(seconds=first)
    found, _ = meter.collect({})
    assert [sums.count for sums in found] == [16, 0, 4]
    assert [sums.corrupt for sums in found] == [2, 2, 4]
    assert [sums.seconds for sums in found] == [0, 2, 2]
    for sums, part in zip(found, (batches[:2], [], batches[2:]), strict=True):
        losses = [cross_entropy(*each).item() * len(each[1]) for each in part]
        assert sums.loss == pytest.approx(sum(losses))
    assert [statistics(sums).get("judged") for sums in found] == [None, None, 20]


@pytest.mark.parametrize("ends", [[100], [3, 50, 51, 100], range(1, 101)])
@pytest.mark.parametrize("patience", [metrics.PATIENCE, 7, 1])
def test_every_digit_is_the_same_however_batches_are_grouped(monkeypatch, patience, ends):
    monkeypatch.setattr(metrics, "PATIENCE", patience)
    scores = Scores(Regression(loss=torch.nn.MSELoss(), reduction="auto"))
    meter = Meter(Single(rank=0, local_rank=0, world_size=1, device_type="cpu"), scores)
    draw, total, batches = torch.Generator().manual_seed(0), Sums(), []
    for number in range(1, 101):
        values, targets = torch.rand(2, 24, generator=draw, dtype=torch.float64) * 10 ** (number / 50)
        loss = torch.nn.functional.mse_loss(values, targets)
        meter.add(ForwardResult(loss, 24, 24, 24, scores.observe(values, (None, targets))))
        batches.append({"loss": loss * 24, **scores.task.statistics(values, (None, targets))})
        if number in ends:
            total.add(collected(meter))
    exact = {name: fsum(float(each[name]) for each in batches) for name in batches[0]}  # rounded once
    loss = exact.pop("loss")
    statistics = {name: torch.tensor(value, dtype=torch.float64) for name, value in exact.items()}
    expected = Sums(counted=2400, loss=loss, statistics=statistics)
    assert scores.of("train", total) == scores.of("train", expected)


def test_accuracies_may_follow_later(meter):
    (logits, targets), (more, theirs), *_ = random_batches()
    passed(meter, cross_entropy(logits, targets), logits, targets, 8)
    first = collected(meter, complete=False)
    assert (first.count, statistics(first)["judged"]) == (8, 0)
    passed(meter, cross_entropy(more, theirs), more, theirs, 8)
    second = collected(meter)
    assert (second.count, statistics(second)["judged"]) == (8, 16)
    assert statistics(second)["correct1"] == brute_force(torch.cat([logits, more]), torch.cat([targets, theirs]), 1)


def test_accuracies_are_there_in_time_for_the_terminal(meter, monkeypatch):
    monkeypatch.setattr(metrics, "ADD_UP_SECONDS", 0)
    logits, targets = random_batches()[0]
    passed(meter, cross_entropy(logits, targets), logits, targets, 8)
    assert statistics(collected(meter, complete=False))["judged"] == 8


def test_soft_labels_have_the_accuracy_of_their_largest(meter, scores):
    logits = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]])
    passed(meter, torch.tensor(2.0), logits, torch.tensor([[0.1, 0.8, 0.1]] * 4), 4)
    found = scores.of("train", collected(meter))
    assert (found["train_loss"], found["train_acc1"], found["train_acc5"]) == (2.0, 25.0, 100.0)


def test_a_sum_counts_as_it_is_and_a_mean_by_what_it_is_over(meter, scores):
    nothing = scores.observe(torch.zeros(2, 3), (None, torch.zeros(2, 3)))
    meter.add(ForwardResult(torch.tensor(6.0), 1, 2, 3, nothing))  # the sum over three tokens in two samples
    meter.add(ForwardResult(torch.tensor(4.0), 5, 1, 5, nothing))  # the mean over five in one
    sums = collected(meter)
    assert (sums.loss, sums.count, sums.counted) == (26, 3, 8)
    assert scores.of("val", sums)["val_loss"] == 26 / 8


def test_a_rank_whose_samples_another_one_counts_adds_nothing(scores):
    class Helping(Single):
        counts_samples = False

    meter = Meter(Helping(rank=1, local_rank=1, world_size=2, device_type="cpu"), scores)
    passed(meter, torch.tensor(2.0), torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64), 4)
    meter.note_corrupt(1)
    assert collected(meter).values() == Sums().values()


def test_sums_add_up():
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    total = Sums(loss=1, count=2, counted=2, seconds=0.5, data_seconds=0.25, statistics={"a": one})
    total.add(Sums(loss=3, count=6, counted=5, corrupt=1, seconds=1.5, statistics={"a": two, "b": two}))
    assert total.values()[:6] == (4, 8, 7, 1, 2, 0.25)  # in the order of the fields
    assert total.statistics["a"].tolist() == [4, 6]
    assert total.statistics["b"].tolist() == [3, 4]
    assert one.tolist() == [1, 2]


def test_many_small_losses_are_not_rounded_away(meter):
    logits, targets = torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)
    passed(meter, torch.tensor(2.0**30), logits, targets, 1)
    for _ in range(1000):
        passed(meter, torch.tensor(1.0), logits, targets, 1)
    assert collected(meter).loss == 2.0**30 + 1000


class Ring(Single):
    """One of three ranks whose exchange adds each number up from another rank on, as a ring does."""

    def __init__(self, rank: int, given: list[torch.Tensor]):
        super().__init__(rank=0, local_rank=0, world_size=1, device_type="cpu")
        self.rank, self.world_size, self.given = rank, 3, given

    def reduce(self, values: torch.Tensor, operation: Any = "sum") -> torch.Tensor:
        self.given.append(values.clone())
        if len(self.given) < self.world_size:
            return values  # the others have yet to come
        total = torch.empty_like(values)
        for place in range(len(values)):
            first, second, third = (self.given[(place + turn) % 3][place] for turn in range(3))
            total[place] = (first + second) + third
        return total


def test_a_window_has_the_same_sum_whichever_others_it_is_exchanged_with(scores):
    losses = torch.rand(3, 40, dtype=torch.float64)

    def sums_of(windows: list[int]) -> list[float]:
        """Of the last rank, which hears of all."""
        given: list[torch.Tensor] = []
        for rank in range(3):
            meter = Meter(Ring(rank, given), scores)
            for window in windows:
                meter._open.loss = losses[rank, window].item()
                meter.close()
            found, flags = meter.collect({"asked": 1.0}, complete=False)
        assert flags == {"asked": 3.0}
        return [sums.loss for sums in found]

    together = sums_of([*range(40)])
    assert together == [sums_of([window])[0] for window in range(40)]
    assert together == [
        reduce(add, column) for column in losses.T.tolist()
    ]  # sum() corrects its rounding from Python 3.12 on
