"""All metrics equal scikit-learn's, whatever the data and however many ranks add up their statistics."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from manyheads.runner.loop.evaluation import CollectedScores
from manyheads.runner.loop.meter import Sums
from manyheads.runner.loop.scores import Scores
from manyheads.runner.metrics.rank.confusion import F1, BalancedAccuracy, IoU, Precision, Recall
from manyheads.runner.metrics.rank.ranking import AUROC, AveragePrecision
from manyheads.runner.task.rank.classification import Classification
from manyheads.runner.task.rank.multilabel import Multilabel
from manyheads.runner.task.rank.regression import Regression
from tests.scikit_learn import reference

CASES = settings(max_examples=20, deadline=None, derandomize=True)
DRAWN = {"seed": st.integers(0, 2**31), "samples": st.integers(1, 24), "ranks": st.integers(1, 3)}
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])
OF_CONFUSION = {
    F1: lambda y, p: reference("f1_score")(y, p, average="macro", zero_division=0),
    Precision: lambda y, p: reference("precision_score")(y, p, average="macro", zero_division=0),
    Recall: lambda y, p: reference("recall_score")(y, p, average="macro", zero_division=0),
    IoU: lambda y, p: reference("jaccard_score")(y, p, average="macro", zero_division=0),
    BalancedAccuracy: lambda y, p: reference("balanced_accuracy_score")(y, p),
}


def measured(scores: Scores, outputs, targets, ranks: int) -> dict[str, float | None]:
    """The columns of an evaluation whose samples are divided among ``ranks``."""
    rows = [torch.zeros_like(scores.flatten({}))]
    for part in np.array_split(np.arange(len(targets)), ranks):
        if len(part):
            halves = [half for half in np.array_split(part, 2) if len(half)]
            observed = [scores.observe(outputs[half], (None, targets[half])) for half in halves]
            rows.append(scores.flatten(scores.add_up(observed)))
    sums = Sums(loss=0.0, count=len(targets), counted=len(targets))
    sums.statistics = scores.unflatten(torch.stack(rows).sum(0))
    return scores.of("val", sums)


def ranked(scores: Scores, outputs, targets, ranks: int) -> dict[str, float | None]:
    """The collected metrics of such an evaluation."""

    class Alone:
        def gather(self, value):
            return [value]

    collected = CollectedScores(Alone(), scores)
    for part in np.array_split(np.arange(len(targets)), ranks):
        if len(part):
            collected.add(outputs[part], (None, targets[part]), part.tolist())
    return collected.values()


@CASES
@given(classes=st.integers(2, 7), present=st.integers(1, 7), dtype=DTYPES, **DRAWN)
def test_of_classes(classes, present, dtype, seed, samples, ranks):
    """With missing classes, and outputs that are equal."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.randint(min(present, classes), (samples,), generator=random)
    outputs = torch.randn(samples, classes, generator=random).mul(2).round(decimals=1).to(dtype)
    task = Classification(loss=nn.CrossEntropyLoss(), reduction="auto")
    added = [kind(kind.__name__, num_classes=classes, task=task) for kind in OF_CONFUSION]
    found = measured(Scores(task, added), outputs, targets, ranks)
    predicted = outputs.argmax(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, expected in OF_CONFUSION.items():
            assert found[f"val_{kind.__name__}"] == pytest.approx(100 * expected(targets, predicted), rel=1e-9)
    assert found["val_acc1"] == pytest.approx(100 * reference("accuracy_score")(targets, predicted))


@CASES
@given(classes=st.integers(2, 6), dtype=DTYPES, **DRAWN)
def test_of_rankings_of_classes(classes, dtype, seed, samples, ranks):
    """By softmax probability: a number added to all logits of a sample changes nothing."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (samples,), generator=random)
    outputs = (torch.randn(samples, classes, generator=random) + 5 * torch.randn(samples, 1, generator=random)).to(
        dtype
    )
    task = Classification(loss=nn.CrossEntropyLoss(), reduction="auto")
    found = ranked(Scores(task, [AUROC(), AveragePrecision()]), outputs, targets, ranks)
    shares, present = outputs.double().softmax(1), [c for c in range(classes) if (targets == c).any()]
    both = [c for c in present if (targets != c).any()]
    aurocs = [reference("roc_auc_score")(targets == c, shares[:, c]) for c in both]
    precisions = [reference("average_precision_score")(targets == c, shares[:, c]) for c in present]
    assert found["auroc"] == (pytest.approx(100 * np.mean(aurocs), rel=1e-9) if both else None)
    assert found["average_precision"] == pytest.approx(100 * np.mean(precisions), rel=1e-9)


@CASES
@given(classes=st.integers(1, 4), **DRAWN)
def test_of_rankings_of_labels(classes, seed, samples, ranks):
    random = torch.Generator().manual_seed(seed)
    targets = torch.randint(2, (samples, classes), generator=random)
    outputs = torch.randn(samples, classes, generator=random).round(decimals=1)
    found = ranked(Scores(Multilabel(loss=nn.BCEWithLogitsLoss(), reduction="auto")), outputs, targets, ranks)["map"]
    each = [c for c in range(classes) if targets[:, c].any()]
    expected = [reference("average_precision_score")(targets[:, c], outputs[:, c]) for c in each]
    assert found == (pytest.approx(100 * np.mean(expected), rel=1e-9) if each else None)


@CASES
@given(
    outputs=st.integers(1, 4),
    mean=st.sampled_from([0.0, 500.0, 1e6]),
    dtype=DTYPES,
    constant=st.booleans(),
    **DRAWN,
)
def test_of_values(outputs, mean, dtype, constant, seed, samples, ranks):
    """Outputs with different means, far from zero, and one that may be constant."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.randn(samples, outputs, generator=random) + mean * torch.arange(1, outputs + 1)
    if constant:
        targets[:, 0] = 3.0
    values = (targets + torch.randn(samples, outputs, generator=random)).clamp(-6e4, 6e4).to(dtype)
    task = Regression(loss=nn.MSELoss(), reduction="auto")
    task.see_first((None, torch.randn(1, outputs, generator=random) + mean * torch.arange(1, outputs + 1)))
    found = measured(Scores(task), values, targets, ranks)
    exact, predicted = targets.double(), values.double()
    assert found["val_mae"] == pytest.approx(reference("mean_absolute_error")(exact, predicted), rel=1e-9)
    expected = reference("r2_score")(exact, predicted) if samples > 1 else None
    assert found["val_r2"] == (None if expected is None else pytest.approx(expected, rel=1e-7, abs=1e-7))
