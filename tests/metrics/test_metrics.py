"""Metrics of summed confusion matrices and of collected scores, against scikit-learn."""

import numpy as np
import pytest
import torch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.rank import confusion as of_confusion
from manyheads.runner.metrics.rank.ranking import AUROC, AveragePrecision
from tests.in_process import rows, small, train
from tests.scikit_learn import reference

CLASSES = 6


class Scored:
    """A task that has scores already."""

    def scored(self, outputs, batch):
        return outputs, batch


def drawn(*, absent: int | None = None, size: int = 500):
    torch.manual_seed(2)
    targets = torch.randint(CLASSES, (size,))
    if absent is not None:
        targets[targets == absent] = 0
    scores = torch.randn(size, CLASSES).round(decimals=1) + 2 * torch.nn.functional.one_hot(targets, CLASSES)
    scores[::7] = 1.0  # equal scores
    return scores, targets


def summed(metric, scores, targets):
    parts = [metric.observe(*part) for part in zip(scores.split(123), targets.split(123), strict=True)]
    return metric.value({name: counts.double() for name, counts in metric.add_up(parts).items()})


@pytest.mark.parametrize("absent", [None, 3])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("F1", lambda y, p: reference("f1_score")(y, p, average="macro", zero_division=0)),
        ("Precision", lambda y, p: reference("precision_score")(y, p, average="macro", zero_division=0)),
        ("Recall", lambda y, p: reference("recall_score")(y, p, average="macro", zero_division=0)),
        ("IoU", lambda y, p: reference("jaccard_score")(y, p, average="macro", zero_division=0)),
        ("PixelAccuracy", lambda y, p: reference("accuracy_score")(y, p)),
    ],
)
def test_of_a_summed_confusion_matrix(kind, expected, absent):
    scores, targets = drawn(absent=absent)
    metric = getattr(of_confusion, kind)("it", num_classes=CLASSES, task=Scored())
    assert summed(metric, scores, targets) == pytest.approx(100 * expected(targets, scores.argmax(1)), rel=1e-12)


@pytest.mark.filterwarnings("ignore:y_pred contains classes")
def test_balanced_accuracy():
    scores, targets = drawn(absent=3)
    metric = of_confusion.BalancedAccuracy("it", num_classes=CLASSES, task=Scored())
    expected = reference("balanced_accuracy_score")(targets, scores.argmax(1))
    assert summed(metric, scores, targets) == pytest.approx(100 * expected)


def test_what_is_ignored_is_in_no_cell():
    scores, targets = drawn()
    found = of_confusion.confusion(scores.argmax(1), targets.where(targets != 2, -1), CLASSES)
    assert found[2].sum() == 0
    assert found.sum() == (targets != 2).sum()


@pytest.mark.parametrize(
    ("metric", "expected"),
    [(AUROC(), "roc_auc_score"), (AveragePrecision(), "average_precision_score")],
)
def test_of_a_ranking(metric, expected):
    scores, targets = (value.numpy() for value in drawn())
    for number in range(CLASSES):
        found = metric.of_class(scores[:, number], targets == number)
        assert found == pytest.approx(100 * reference(expected)(targets == number, scores[:, number]), rel=1e-12)


def test_a_class_that_never_occurs_has_no_place_in_a_mean():
    assert AUROC().of_class(np.zeros(3), np.zeros(3, bool)) is None
    assert AveragePrecision().of_class(np.zeros(3), np.zeros(3, bool)) is None
    assert AUROC().over_classes([None, 50.0, None, 100.0]) == 75
    assert AUROC().over_classes([None]) is None


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Trained with every metric of conf/."""
    path = tmp_path_factory.mktemp("digits")
    run = train(path, small("metrics=[f1,auroc,average_precision]", "checkpoint.monitor=val_auroc", "model.width=4"))
    return run, rows(run.folder.epochs)


def test_a_run_measures_what_scikit_learn_does(digits):
    run, table = digits
    model, outputs, targets = run.update.model.eval(), [], []
    with torch.no_grad():
        for batch in run.trainer.evaluation.loader.epoch(0):
            outputs.append(model(batch.inputs))
            targets.append(batch.content[1])
    scores, targets = torch.cat(outputs).softmax(1).double(), torch.cat(targets)
    last = table[-1]
    f1 = reference("f1_score")(targets, scores.argmax(1), average="macro")
    assert float(last["val_f1"]) == pytest.approx(100 * f1, rel=1e-9)
    auroc = reference("roc_auc_score")(targets, scores, multi_class="ovr")
    assert float(last["val_auroc"]) == pytest.approx(100 * auroc, rel=1e-9)


def test_what_needs_every_output_is_of_evaluations_only(digits):
    run, table = digits
    assert {"train_f1", "val_f1", "val_auroc", "val_average_precision"} <= {*table[0]}
    assert "train_auroc" not in table[0]
    result = run.folder.read_result()
    assert result["scores"]["monitor"] == "val_auroc"
    assert result["objective"] == max(float(row["val_auroc"]) for row in table)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["metrics=[auroc]", "metrics.auroc.at_most=0.0001"], r"take more than 0.0001 MB. Raise metrics.auroc.at_most"),
        (
            ["metrics=[f1]", "+metrics.f1.at_most=0.0001"],
            r"matrix of 3 classes takes .* than 0\.0001 MB\. Leave the metric out, or set",
        ),
        (
            ["metrics=[f1]", "data.num_classes=8000"],
            r"matrix of 8000 classes takes some 2319 MB .*\+metrics\.f1\.at_most=2320\.",
        ),
        (["metrics=[f1]", "task=regression", "data=diabetes", "model=mlp"], "metrics.f1: the number of classes"),
        (["+metrics.f1._target_=fractions.Fraction"], "rejects its arguments"),
    ],
)
def test_mistakes_are_told(tmp_path, overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, small(*overrides))
