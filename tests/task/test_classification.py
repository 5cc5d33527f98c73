"""Classification: its accuracies, and what an own loss says of itself."""

import numpy as np
import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.classification import Classification, top_places


def random_batches(classes: int = 10) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(n, classes), torch.randint(classes, (n,))) for n in (8, 8, 3, 1)]


def brute_force(logits: torch.Tensor, targets: torch.Tensor, first: int) -> int:
    order = np.argsort(-logits.numpy(), axis=1)[:, :first]
    return sum(int(target in best) for target, best in zip(targets.tolist(), order.tolist(), strict=True))


@pytest.mark.parametrize("classes", [1, 2, 5, 6, 10])
def test_places_against_brute_force(classes):
    for logits, targets in random_batches(classes):
        found = top_places(logits, targets).cumsum(0).tolist()
        assert found == [brute_force(logits, targets, first) for first in range(1, 6)]


def test_of_equal_logits_the_first_class_leads_and_nan_is_never_right():
    assert top_places(torch.zeros(6, 6), torch.arange(6)).tolist() == [1, 1, 1, 1, 1]
    assert top_places(torch.full((2, 3), torch.nan), torch.tensor([0, 2])).tolist() == [0] * 5
    assert top_places(torch.tensor([[torch.nan, 1.0, 0.0]]), torch.tensor([1])).tolist() == [0, 1, 0, 0, 0]


class Silent(nn.Module):
    """An own loss that doesn't say what it returns."""

    def forward(self, outputs, targets):
        return (outputs - targets).square().mean()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_itself_says_whether_it_is_a_mean(reduction):
    assert Classification(loss=nn.CrossEntropyLoss(reduction=reduction), reduction="auto").reduction == reduction
    assert Classification(loss=Silent(), reduction=reduction).reduction == reduction


@pytest.mark.parametrize("loss", [Silent(), nn.CrossEntropyLoss(reduction="none")])
def test_what_cannot_be_told_is_refused(loss):
    with pytest.raises(ConfigurationError, match=r"loss\._target_=.* Set task.reduction=mean or task.reduction=sum"):
        Classification(loss=loss, reduction="auto")


def test_ignored_targets_do_not_count():
    task = Classification(loss=nn.CrossEntropyLoss(ignore_index=2), reduction="auto")
    assert not task.counts_samples
    assert task.count((None, torch.tensor([0, 2, 2, 1]))) == 2
    assert Classification(loss=nn.CrossEntropyLoss(), reduction="auto").counts_samples
