"""The first module that computes otherwise on a rank's share is found, whatever kind of module it is."""

import pytest
import torch
from torch import Tensor, nn

from manyheads.runner.answers.measure.rank.trace import Trace, culprit
from tests.answers.parity import broken

CPU = [torch.device("cpu")]
TOLERANCE = 1e-9


class Windows(nn.Module):
    """Four rows of the first dimension for each sample, as windowed attention has them; ``how``: what it mixes."""

    def __init__(self, how: str):
        super().__init__()
        self.inner = nn.Linear(48, 5)
        self.normal = nn.BatchNorm1d(5) if how == "batch" else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        rows = images.reshape(len(images), 4, -1).flatten(0, 1)
        return self.normal(self.inner(rows)).view(len(images), -1)


class TimeFirst(nn.Module):
    """Puts the samples into the second dimension, where this trace can't see them."""

    def __init__(self):
        super().__init__()
        self.rows = nn.GRU(24, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(
            self.rows(images.flatten(2).transpose(1, 2).reshape(len(images), 8, 24).transpose(0, 1))[0][-1]
        )


def traced(make, *, samples: list[list[int]], seed: int = 5) -> tuple[dict, Trace]:
    """One update of these micro-batches' samples by a fresh model."""
    torch.manual_seed(1)
    model = make().double().train()
    images = torch.randn(8, 3, 8, 8, dtype=torch.float64)
    torch.manual_seed(seed)
    trace = Trace(model, CPU)
    with trace.following():
        for indices in samples:
            model(images[indices or [0]])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return trace.samples(samples), trace


def found(make, *, shares=((0, 1, 2, 3), (4, 5, 6, 7))) -> list[tuple[str | None, bool | None, list[str]]]:
    """Culprit, whether outputs agree, and what drew random numbers, on each rank with such a share."""
    baseline, _ = traced(make, samples=[[*range(8)]])
    results = []
    for rank, share in enumerate(shares):
        own, trace = traced(make, samples=[list(share)], seed=5 + rank)
        which, agree = culprit(baseline, own, TOLERANCE)
        results.append((which and which[1], agree, trace.drew))
    return results


def classes(kind, **options):
    return lambda: kind(num_classes=3, **options)


@pytest.mark.parametrize("make", [classes(broken.Plain), classes(broken.Unused), lambda: Windows("rows"), TimeFirst])
def test_a_healthy_model_is_not_accused(make):
    assert found(make) == [(None, True, [])] * 2


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (classes(broken.Normalized), "body.1"),
        (classes(broken.Centred), ""),
        (lambda: Windows("batch"), "normal"),
    ],
)
def test_who_depends_on_the_other_samples_is_found_on_every_rank(make, name):
    assert found(make) == [(name, False, [])] * 2


@pytest.mark.parametrize(("functional", "name"), [(False, "dropout"), (True, "")])
def test_dropout_is_found_on_the_rank_that_draws_otherwise(functional, name):
    _, other = found(classes(broken.Dropping, functional=functional))
    assert other[:2] == (name, False)
    assert other[2][0] == name


def test_micro_batches_are_matched_sample_by_sample():
    baseline, _ = traced(classes(broken.Plain), samples=[[5, 1, 2, 0], [3, 4, 6, 7]])
    for samples in ([[5, 1], [3, 4]], [[2, 0], [6, 7]], [[2], []], [[]]):
        own, _ = traced(classes(broken.Plain), samples=samples)
        assert culprit(baseline, own, TOLERANCE) == (None, True if samples[0] else None)
    own, _ = traced(classes(broken.Plain), samples=[[5, 1]])
    own["samples"] = [1, 5]  # what belongs to other samples must not agree by chance
    assert culprit(baseline, own, TOLERANCE)[1] is False


def test_what_is_not_a_number_in_both_is_the_same():
    def make() -> nn.Module:
        model = broken.Plain(num_classes=3)
        torch.nn.init.constant_(model.head.bias, float("nan"))
        return model

    assert [agree for _, agree, _ in found(make)] == [True, True]
