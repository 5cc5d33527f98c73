"""What the loss of an own task returns is found out from halves of its first batch, without a trace."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax, mse_loss, normalize

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.reduction import refuse_other_reduction
from manyheads.runner.task.rank.task import Task
from tests.in_process import small, train
from tests.task.sentences import Averaged, NextWord, Sentences

ROWS = 16
LOGITS = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1))
BATCH = torch.zeros(ROWS, 3), torch.arange(ROWS) % 5, torch.rand(5, generator=torch.Generator().manual_seed(2))


class Own(Task):
    """``of``: computes the loss."""

    def __init__(self, of, reduction):
        super().__init__()
        self.of, self.reduction, self.calls = of, reduction, 0
        self.register_buffer("seen", torch.zeros(()))

    def loss(self, outputs, batch):
        self.calls += 1
        self.seen += 1
        return self.of(outputs, batch[1])


def contrastive(outputs, targets):
    views = normalize(outputs)
    return cross_entropy(views @ views.T / 0.1, torch.arange(len(views)).roll(1))


def dice(outputs, targets):
    shares, truth = outputs.softmax(1), nn.functional.one_hot(targets, 5)
    return 1 - (2 * (shares * truth).sum(0) / (shares + truth).sum(0)).mean()


def focal(outputs, targets):
    chosen = log_softmax(outputs, 1).gather(1, targets[:, None])
    return (-((1 - chosen.exp()) ** 2) * chosen).mean()


LOSSES = {  # and what they return
    "cross-entropy": (cross_entropy, "mean"),
    "summed": (lambda outputs, targets: cross_entropy(outputs, targets, reduction="sum"), "sum"),
    "focal": (focal, "mean"),
    "squares": (lambda outputs, targets: mse_loss(outputs, outputs * 0 + 1), "mean"),
    "of terms that cancel": (lambda outputs, targets: (outputs - outputs.mean(1, keepdim=True)).sum(), "sum and mean"),
    "by a number": (lambda outputs, targets: cross_entropy(outputs, targets, reduction="sum") / 64, "sum"),
    "contrastive": (contrastive, None),
    "dice": (dice, None),
    "nothing": (lambda outputs, targets: outputs.sum() * 0, "sum and mean"),
    "random": (lambda outputs, targets: cross_entropy(outputs * torch.rand(outputs.shape), targets), "unknown"),
    "whole batches only": (lambda outputs, targets: outputs.view(ROWS, 5).mean() ** 2, "unknown"),
    "gradients": (lambda outputs, targets: torch.autograd.grad(outputs.sum(), outputs)[0].mean() ** 2, "unknown"),
    "not finite": (lambda outputs, targets: outputs.sum() * float("nan"), "unknown"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["sum", "mean", "batch"])
@pytest.mark.parametrize(("loss", "returned"), LOSSES.values(), ids=LOSSES)
def test_a_loss_that_is_not_what_its_task_declares_is_refused_with_the_line_to_add(loss, returned, reduction, dtype):
    task = Own(loss, reduction)
    outputs = LOGITS.clone().to(dtype).requires_grad_()
    before = torch.get_rng_state()
    if returned == "unknown" or reduction in (returned or "") or reduction == "batch":
        refuse_other_reduction(task, outputs, BATCH)
    else:
        wanted = returned or "batch"
        with pytest.raises(ConfigurationError, match=rf'[Aa]dd reduction = "{wanted}" to the class') as caught:
            refuse_other_reduction(task, outputs, BATCH)
        assert returned or "contrastive and dice losses" in str(caught.value)
    assert torch.equal(torch.get_rng_state(), before)
    assert (task.calls, int(task.seen), outputs.grad) == (0, 0, None)


@pytest.mark.parametrize("outputs", [torch.ones(()), torch.ones(1, 5), torch.ones(ROWS * 2, 5), {}])
def test_outputs_that_are_not_of_samples_are_left_alone(outputs):
    refuse_other_reduction(Own(lambda outputs, targets: torch.tensor(1.0), "sum"), outputs, BATCH)


@pytest.mark.parametrize("kind", [NextWord, Averaged])
def test_means_and_sums_are_over_what_the_task_counts(kind):
    batch = Sentences.collate_fn([Sentences(split="train")[index] for index in range(7)])
    logits = torch.randn(*batch["labels"].shape, 11)
    refuse_other_reduction(kind(), {"logits": logits}, batch)


class Careless(Task):
    """Returns the mean, as most own losses do."""

    def loss(self, outputs, batch):
        return cross_entropy(outputs, batch[1])


class Vector(Task):
    """Returns a loss for each sample."""

    def loss(self, outputs, batch):
        return cross_entropy(outputs, batch[1], reduction="none")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("Careless", r"Careless.*its loss returns the mean over a batch.*Add reduction = \"mean\" to the class"),
        ("Vector", r"shape \(\d+,\).*Let Vector\.loss return the sum over the batch, or the mean"),
    ],
)
def test_a_run_is_refused_at_its_first_batch(tmp_path, task, message):
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, small("task=custom", f"task._target_=tests.loop.test_reduction.{task}"))
