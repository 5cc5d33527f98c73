"""Metrics of torchmetrics: their value over all samples, however these are divided among batches and ranks."""

import pytest
import torch
import yaml

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.rank.torch_metrics import TorchMetric
from tests.in_process import SMALL, rows
from tests.loop.test_trainer import synthetic
from tests.optional_wings import load

pytestmark = pytest.mark.needs("torchmetrics")
HERE = "manyheads.runner.metrics.rank.torch_metrics.TorchMetric"
CLASSES = 3
WANTED = {
    "accuracy": "{_target_: torchmetrics.classification.MulticlassAccuracy, num_classes: 3, average: micro}",
    "f1": "{_target_: torchmetrics.classification.MulticlassF1Score, num_classes: 3}",
    "auroc": "{_target_: torchmetrics.classification.MulticlassAUROC, num_classes: 3, thresholds: 50}",
    "kappa": "{_target_: torchmetrics.classification.MulticlassCohenKappa, num_classes: 3}",
}
OPTIONS = [f"+metrics.{name}={{_target_: {HERE}, metric: {metric}}}" for name, metric in WANTED.items()]


class Classes:
    """A task that has logits already."""

    outputs = "logits"

    def scored(self, outputs, batch):
        return outputs, batch


class Values(Classes):
    outputs = None


def drawn(*, classes: int = CLASSES) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    targets = torch.randint(classes, (500,))
    return torch.randn(500, classes) + torch.nn.functional.one_hot(targets, classes), targets


def summed(metric: TorchMetric, scores: torch.Tensor, targets: torch.Tensor) -> float | None:
    """Its value from batches of different sizes."""
    total: dict[str, torch.Tensor] = {}
    for part in zip(scores.split(123), targets.split(123), strict=True):
        for name, value in metric.statistics(*part).items():
            total[name] = total.get(name, 0) + value.double()
    assert {name: tuple(value.shape) for name, value in total.items()} == metric.shapes
    return metric.value(total)


def classification(name: str, **options):
    from torchmetrics import classification

    return getattr(classification, name)(**{"num_classes": CLASSES, **options})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MulticlassAccuracy", {"average": "micro"}),
        ("MulticlassF1Score", {}),
        ("MulticlassAUROC", {"thresholds": 50}),
        ("MulticlassAveragePrecision", {"thresholds": 50}),
        ("MulticlassCohenKappa", {}),
    ],
)
def test_the_value_is_theirs_over_all_samples(name, options):
    scores, targets = drawn()
    metric = TorchMetric("it", metric=classification(name, **options), task=Classes())
    assert summed(metric, scores, targets) == pytest.approx(
        float(classification(name, **options)(scores.softmax(1), targets)), rel=1e-6
    )


def test_samples_without_a_class_are_left_out():
    scores, targets = drawn()
    some = torch.where(torch.arange(500) % 3 == 0, -100, targets)
    metric = TorchMetric("it", metric=classification("MulticlassF1Score"), task=Classes())
    known = some >= 0
    expected = float(classification("MulticlassF1Score")(scores[known].softmax(1), targets[known]))
    assert summed(metric, scores, some) == pytest.approx(expected)
    assert summed(metric, scores, torch.full_like(targets, -100)) is None


def test_logits_that_look_like_probabilities_are_logits():
    """Left alone, torchmetrics takes a batch with all numbers in 0 to 1 for probabilities, another one for logits."""
    scores = torch.tensor([[0.1, 0.9], [0.2, 0.1], [0.9, 0.9], [0.4, 0.6]])
    metric = TorchMetric("it", metric=of_torchmetrics("F1Score", task="multilabel", num_labels=2), task=Classes())
    targets = torch.ones(4, 2, dtype=torch.long)
    assert summed(metric, scores, targets) == 1.0  # the sigmoid of each is above a half


def test_of_values():
    from torchmetrics import MeanSquaredError

    torch.manual_seed(1)
    found, wanted = torch.randn(500), torch.randn(500)
    metric = TorchMetric("mse", metric=MeanSquaredError(), task=Values())
    assert metric.direction == "min"
    assert summed(metric, found, wanted) == pytest.approx(float((found - wanted).square().mean()), rel=1e-5)


def of_torchmetrics(name: str, **options):
    import torchmetrics

    return getattr(torchmetrics, name)(**options)


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (lambda: 3, "is not a metric of torchmetrics"),
        (lambda: classification("MulticlassAUROC"), "keeps every sample, not sums: set its thresholds"),
        (lambda: of_torchmetrics("SumMetric"), "has no better direction: set metrics.it.direction"),
        (lambda: classification("MulticlassF1Score", average="none"), "gives more than one number"),
        (lambda: classification("MulticlassF1Score", num_classes=7), r"rejects scores \(123, 3\)"),
    ],
)
def test_what_gives_no_number_from_sums_is_refused(metric, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        summed(TorchMetric("it", metric=metric(), task=Classes()), *drawn())


def greatest():
    """A metric whose state is a maximum."""
    from torchmetrics import Metric

    class Greatest(Metric):
        full_state_update = False

        def __init__(self):
            super().__init__()
            self.add_state("most", torch.tensor(0.0), dist_reduce_fx="max")

        def update(self, found, wanted):
            self.most = torch.maximum(self.most, (found - wanted).abs().max())

        def compute(self):
            return self.most

    return Greatest()


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (lambda: of_torchmetrics("PearsonCorrCoef"), "has states that cannot be merged"),
        (greatest, "has states that are not sums, which ranks and batches could not add up"),
    ],
)
def test_states_that_are_not_sums_are_noticed_by_the_first_batch(metric, sentence):
    scores, _ = drawn()
    it = TorchMetric("it", metric=metric(), task=Values(), direction="max")
    with pytest.raises(ConfigurationError, match=sentence):
        summed(it, scores[:, 0], scores[:, 1])


@pytest.mark.processes
def test_three_ranks_measure_what_theirs_does_in_one_process(tmp_path, run_command):
    words = [word for word in SMALL if "batch_size" not in word]
    words += ["data.batch_size=9", "trainer.max_steps=9", "parallel=ddp", "launcher.nproc_per_node=3"]
    assert run_command(*words, *OPTIONS, f"hydra.run.dir={tmp_path}/run").code == 0
    model = load(tmp_path / "run", which="last").model
    images, targets = synthetic(train=False)
    with torch.no_grad():
        scores = model(images).softmax(1)
    row = rows(tmp_path / "run" / "epochs.csv")[-1]
    for name, metric in WANTED.items():
        settings = yaml.safe_load(metric)
        theirs = classification(settings.pop("_target_").rpartition(".")[2], **settings)
        assert float(row[f"val_{name}"]) == pytest.approx(float(theirs(scores, targets)), rel=1e-5), name
        assert row[f"train_{name}"]
