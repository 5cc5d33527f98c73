"""task=own_loss: where the loss and the labels are found, and what is refused."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.own_loss import OwnLoss
from tests.in_process import rows, small, train
from tests.task.denominators import SHARED, TASKS, config_of

LABELS = torch.randint(7, (4, 6), generator=torch.Generator().manual_seed(1))
LOGITS = torch.randn(4, 6, 7, generator=torch.Generator().manual_seed(2))
TOKENS = torch.zeros_like(LABELS)
BATCH = (TOKENS, LABELS)


def task(**declared) -> OwnLoss:
    section = {"loss_over": "tokens", "reduction": "mean", "ignore_index": -100, "labels": "auto", "metrics": {}}
    return OwnLoss(**section | declared)


def plain(over: str = "tokens", reduction: str = "mean", labels: torch.Tensor = LABELS, **how) -> torch.Tensor:
    logits, labels = (LOGITS, labels) if over == "tokens" else (LOGITS[:, :-1], labels[:, 1:])
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=reduction, **how)


LOSS = plain()


class TestTheLoss:
    @pytest.mark.parametrize(
        "outputs",
        [
            LOSS,
            (LOGITS, LOSS),
            (LOSS, LOGITS),
            [LOGITS, LOSS, None],
            {"loss": LOSS},
            {"loss": LOSS, "logits": LOGITS, "error": torch.tensor(1.0)},
            SimpleNamespace(loss=LOSS, logits=LOGITS),
            (LOGITS, {"loss": LOSS, "error": 1.0}),
        ],
    )
    def test_is_found(self, outputs):
        assert task().loss(outputs, BATCH) is LOSS

    @pytest.mark.parametrize("outputs", [(LOGITS, None), {"logits": LOGITS}, (LOSS, LOSS), SimpleNamespace(loss=None)])
    def test_is_missing(self, outputs):
        with pytest.raises(ConfigurationError, match=r"without a loss\. task=own_loss needs a batch with labels"):
            task().loss(outputs, BATCH)


class TestTheLabels:
    @pytest.mark.parametrize(
        ("batch", "where"),
        [
            (BATCH, "auto"),
            ([TOKENS, TOKENS.bool(), LABELS], "auto"),
            ((LABELS, TOKENS), 0),
            ({"input_ids": TOKENS, "labels": LABELS}, "auto"),
            ({"tokens": TOKENS, "targets": LABELS}, "auto"),
            ({"tokens": TOKENS, "next": LABELS}, "next"),
            (SimpleNamespace(tokens=TOKENS, next=LABELS), "next"),
        ],
    )
    def test_are_found(self, batch, where):
        assert task(labels=where).labels(batch) is LABELS
        assert task(labels=where).count(batch) == 24

    @pytest.mark.parametrize(("batch", "where"), [({"x": LABELS}, "auto"), (BATCH, 2), (TOKENS, "auto"), (BATCH, "y")])
    def test_are_missing(self, batch, where):
        with pytest.raises(ConfigurationError, match=rf"task.labels={where}: a batch is .* which has no such tensor"):
            task(labels=where).count(batch)

    def test_that_are_no_classes(self):
        with pytest.raises(ConfigurationError, match=r"are not class numbers. Set task.loss_over=samples"):
            task().count((TOKENS, LOGITS))

    def test_ignored_under_another_number(self):
        labels = LABELS.clone()
        labels[0, 2] = -1
        assert task(ignore_index=-1).count((TOKENS, labels)) == 23
        with pytest.raises(ConfigurationError, match=r"task.ignore_index=-100: a label is -1. Set task.ignore_index"):
            task().count((TOKENS, labels))


class TestTheDenominator:
    @pytest.mark.parametrize("over", ["tokens", "next_tokens"])
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_that_is_not_the_declared_one(self, over, reduction):
        loss = plain(over, reduction)
        for other in ("tokens", "next_tokens"):
            for another in ("mean", "sum"):
                declared = task(loss_over=other, reduction=another)
                if (other, another) == (over, reduction):
                    declared.loss((LOGITS, loss), BATCH)
                    continue
                with pytest.raises(ConfigurationError, match=f"Set task.loss_over={over} task.reduction={reduction}"):
                    declared.loss((LOGITS, loss), BATCH)

    def test_of_samples(self):
        batch, logits = (TOKENS, LABELS[:, 0]), LOGITS[:, 0]
        loss = cross_entropy(logits, batch[1], reduction="sum")
        task(loss_over="samples", reduction="sum").loss((logits, loss), batch)
        with pytest.raises(ConfigurationError, match=r"Set task.loss_over=samples task.reduction=sum"):
            task(loss_over="samples").loss((logits, loss), batch)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_in_another_precision(self, dtype):
        logits = LOGITS.to(dtype)
        exact = logits if dtype == torch.float64 else logits.float()
        task().loss((logits, cross_entropy(exact.flatten(0, 1), LABELS.flatten())), BATCH)

    @pytest.mark.parametrize("outputs", [(LOGITS, LOSS * 1.1), LOSS, (LOGITS[:, :3], LOSS), {"loss": LOSS + 1}])
    def test_another_loss_is_taken_as_declared(self, outputs):
        task(loss_over="next_tokens").loss(outputs, BATCH)


class TestMetrics:
    def test_one_that_the_model_does_not_return(self):
        with pytest.raises(ConfigurationError, match=r"task.metrics.error: the model returns no single number"):
            task(metrics={"error": "min"}).statistics({"loss": LOSS}, BATCH)

    def test_columns_of_a_run(self, tmp_path):
        train(tmp_path, config_of(*TASKS["own loss of samples"]))
        row = rows(tmp_path / "epochs.csv")[-1]
        assert 0 < float(row["val_error"]) < float(row["val_loss"])


@pytest.mark.parametrize("name", ["own loss", "own loss of a tuple"])
def test_perplexity_is_measured(tmp_path, name):
    """Also of a model that uses ``view``, and ties its weights."""
    train(tmp_path, config_of(*TASKS[name]))
    row = rows(tmp_path / "epochs.csv")[-1]
    assert float(row["val_perplexity"]) == pytest.approx(math.exp(float(row["val_loss"])))


def test_a_pipeline_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"task=own_loss does not work with parallel=pipeline.* more than a stage"
    ):
        small(*SHARED, *TASKS["own loss of a tuple"], "parallel=pipeline", "launcher.nproc_per_node=2")


class Stepped(torch.nn.Module):
    """As written for Lightning."""

    def forward(self, tokens):
        return tokens

    def training_step(self, batch, batch_idx):
        return self(batch[0]).sum()


class Labelled(Stepped):
    def forward(self, tokens, labels):
        return tokens.sum()


def test_a_training_step_is_not_called_and_that_is_said():
    with pytest.raises(
        ConfigurationError, match="the forward of Stepped takes no labels, and its training_step is not"
    ):
        task().check_model(Stepped())
    task().check_model(Labelled())
    task().check_model(torch.nn.Linear(2, 2))


class TestInputs:
    def test_are_one_entry_of_the_batch_if_it_is_named(self):
        assert task(inputs=0).inputs(BATCH) is TOKENS
        assert task(inputs="x").inputs({"x": TOKENS, "labels": LABELS}) is TOKENS
        assert task().inputs(BATCH) is BATCH

    def test_that_do_not_exist_are_refused(self):
        with pytest.raises(
            ConfigurationError, match=r"task\.inputs=image: a batch is a dict with x, .* Set it to the key"
        ):
            task(inputs="image").inputs({"x": TOKENS, "labels": LABELS})

    def test_of_a_diffusion_model_are_its_images(self, tmp_path):
        denoiser = ("model=custom", "model._target_=tests.task.zoo.Denoiser")
        run = train(
            tmp_path,
            small(*denoiser, "task=own_loss", "task.inputs=0", "task.loss_over=samples", "trainer.max_steps=3"),
        )
        assert run.trainer.progress.step == 3
