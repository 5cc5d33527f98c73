"""What is measured, and the columns and words that follow from it."""

import pytest
import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.meter import Sums
from manyheads.runner.loop.scores import Scores
from manyheads.runner.metrics.metric import Metric
from manyheads.runner.metrics.rank.confusion import F1, IoU
from manyheads.runner.task.rank.classification import Classification
from manyheads.runner.task.rank.task import Task

CLASSES = Classification(loss=nn.CrossEntropyLoss(), reduction="auto")


class Spread(Metric):
    """The variance of the outputs; the lower the better."""

    direction = "min"
    shapes = {"moments": (3,)}

    def statistics(self, outputs: Tensor, batch: object) -> dict[str, Tensor]:
        return {"moments": torch.stack([torch.ones_like(outputs).sum(), outputs.sum(), outputs.square().sum()])}

    def value(self, sums):
        count, total, squares = sums["moments"].tolist()
        return squares / count - (total / count) ** 2 if count else None


class Regression(Task):
    metrics = (Spread("spread", label="variance"),)
    monitor = "spread"

    def loss(self, outputs, batch):
        return (outputs - batch[1]).square().sum()

    def statistics(self, outputs, batch):
        return self.metrics[0].statistics(outputs, batch)


def sums(scores: Scores, *batches: Tensor) -> Sums:
    observed = [scores.observe(outputs, (None, torch.zeros(len(outputs)))) for outputs in batches]
    return Sums(loss=6.0, count=4, counted=4, statistics=scores.add_up(observed))


def test_columns_follow_from_the_metrics_names():
    scores = Scores(CLASSES, [Spread("spread")])
    assert scores.names("val") == ["val_loss", "val_acc1", "val_acc5", "val_spread"]
    assert Scores(Regression()).names("train") == ["train_loss", "train_spread"]


@pytest.mark.parametrize("scores", [Scores(Regression()), Scores(Regression(), [Spread("more")])])
def test_statistics_are_added_up_before_they_are_divided(scores):
    torch.manual_seed(0)
    outputs = torch.randn(10, dtype=torch.float64)
    found = scores.of("val", sums(scores, outputs[:3], outputs[3:]))
    assert found["val_loss"] == 1.5
    for name in found.keys() - {"val_loss"}:
        assert found[name] == pytest.approx(float(outputs.var(correction=0)))


def test_metrics_of_one_family_have_their_statistics_computed_once():
    metrics = [kind(kind.__name__, num_classes=3, task=CLASSES) for kind in (F1, IoU)]
    together, apart = Scores(CLASSES, metrics), [Scores(CLASSES, [metric]) for metric in metrics]
    outputs, targets = torch.eye(3)[[0, 1, 2, 2]], torch.tensor([0, 1, 2, 1])

    def columns(scores: Scores) -> dict[str, float | None]:
        observed = scores.observe(outputs, (None, targets))
        assert len(observed.by_metrics) == 1
        return scores.of("val", Sums(loss=6.0, count=4, counted=4, statistics=scores.add_up([observed])))

    assert columns(together) == columns(apart[0]) | columns(apart[1])
    assert len(Scores(CLASSES, [*metrics, F1("of_two", num_classes=2)]).added) == 2


def test_statistics_travel_in_one_row_of_numbers():
    scores = Scores(CLASSES, [Spread("spread")])
    row = scores.flatten({"correct1": torch.tensor(3), "spread.moments": torch.tensor([1.0, 2.0, 3.0])})
    assert row.tolist() == [3, 0, 0, 1, 2, 3, *[0] * 3]  # what is absent is zero, such as the rests
    assert scores.unflatten(row)["spread.moments"].tolist() == [1, 2, 3]


def test_what_was_not_measured_is_none():
    assert Scores(CLASSES).of("val", Sums()) == {"val_loss": None, "val_acc1": None, "val_acc5": None}


@pytest.mark.parametrize(
    ("task", "monitor", "means", "direction"),
    [
        (CLASSES, "auto", "val_acc1", "max"),
        (CLASSES, "val_loss", "val_loss", "min"),
        (Regression(), "auto", "val_spread", "min"),
        (Task(), "auto", "val_loss", "min"),
    ],
)
def test_the_monitor_is_the_task_s_own_unless_it_is_set(task, monitor, means, direction):
    scores = Scores(task, monitor=monitor)
    assert (scores.monitor, scores.direction) == (means, direction)
    assert scores.is_better({means: 1.0}, None)
    assert scores.is_better({means: 2.0}, {means: 1.0}) == (direction == "max")
    assert not scores.is_better({means: 1.0}, {means: 1.0})
    assert not scores.is_better({means: None}, None)
    assert not scores.is_better({means: float("nan")}, None)
    assert scores.is_better({means: 1.0}, {"val_of_another_task": 1.0})


def test_a_monitor_that_is_not_measured_is_refused():
    with pytest.raises(ConfigurationError, match=r"val_acc1 is not measured. .*Allowed: auto, val_loss, val_spr"):
        Scores(Regression(), monitor="val_acc1")


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="two metrics have the same name"):
        Scores(Regression(), [Spread("spread")])


def test_words():
    row = {"train_loss": 1.0, "train_acc1": 12.345, "train_acc5": 50.0, "val_loss": None}
    scores = Scores(CLASSES)
    assert scores.live(row) == "acc 12.3%"
    assert (scores.line("train", row), scores.line("val", row)) == ("1.0000 12.35%", "")
    assert scores.sentence(row) == "train loss 1.0000, accuracy 12.35% (top-5 50.00%)"
    plain = Scores(Regression())
    row = {"train_loss": 1.0, "train_spread": 0.012345, "val_loss": 2.0, "val_spread": None}
    assert plain.live(row) == "variance 0.0123"
    assert (plain.line("train", row), plain.line("val", row)) == ("1.0000 0.01235", "2.0000")
    assert plain.sentence(row) == "val loss 2.0000"
    assert Scores(Task()).line("train", row) == "1.0000"


def test_a_report_learns_names_and_directions():
    assert Scores(Regression()).describe() == {
        "monitor": "val_spread",
        "direction": "min",
        "version": 1,
        "evaluations": {},
        "metrics": {"spread": {"direction": "min", "label": "variance", "unit": "", "version": 1}},
    }
