"""Classification: its accuracies, and what an own loss says of itself."""

import csv

import numpy as np
import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.classification import Classification, top_places
from tests.in_process import rows, small, train


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


class Labelled(torch.utils.data.Dataset):
    """Rows of two classes, with labels in one of many forms."""

    num_classes = 2

    def __init__(self, split: str, *, form: str = "int64"):
        random = torch.Generator().manual_seed(1 if split == "train" else 2)
        self.inputs, self.form = torch.randn(40, 8, generator=random), form
        self.labels = (self.inputs[:, 0] > 0).long()

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int):
        label, row = self.labels[index], self.inputs[index]
        if hasattr(torch, self.form):
            return row, label.to(getattr(torch, self.form))
        one_hot = nn.functional.one_hot(label, 2)
        return {
            "column": (row, label[None]),
            "one_hot": (row, one_hot),
            "probabilities": (row, one_hot.float()),
            "several": (row, torch.ones(2)),
            "text": (row, "ab"[int(label)]),
            "dict": {"x": row, "labels": label},
            "ignored": (row, label.where(torch.tensor(index % 4 > 0), -100)),
            "minus": (row, label.where(torch.tensor(index % 4 > 0), -1)),
            "zero": (row, label.where(torch.tensor(index % 4 > 0), 0)),
        }[self.form]


LABELLED = (
    *("data=custom", "data._target_=tests.task.test_classification.Labelled", "data.num_workers=0"),
    *("model=mlp", "model.num_inputs=8", "trainer.epochs=1", "model.width=4"),
)


def last_row(path, *keys: str) -> dict[str, str]:
    row = rows(train(path, small(*LABELLED, *keys)).folder.epochs)[-1]
    return {name: row[name] for name in ("train_loss", "val_loss", "val_acc1")}


@pytest.mark.parametrize("form", ["int32", "int16", "uint8", "bool", "column", "one_hot", "probabilities"])
def test_labels_of_every_clear_form_train_as_class_numbers_do(tmp_path, form):
    plain, other = (last_row(tmp_path / each, f"+data.form={each}") for each in ("int64", form))
    assert other["val_acc1"] == plain["val_acc1"] != ""
    for name in ("train_loss", "val_loss"):
        assert float(other[name]) == pytest.approx(float(plain[name]), rel=1e-6)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("+data.form=float32",), "For numbers set task=regression, for labels 0 and 1 task=multilabel"),
        (("+data.form=several",), "add up to 2, and not to 1. For several classes of a sample set task=multilabel"),
        (("+data.form=text",), r"task=classification needs samples \(inputs, target\), such as .* 40 str"),
        (("+data.form=dict",), r"samples are dicts \(x, labels\)"),
        (("+data.form=minus",), r"the label -1 \(sample .* is not one of the model's 2 classes"),
        (("+data.form=ignored", "trainer.mixup_alpha=0.2"), "samples whose label is ignored"),
        (("loss._target_=torch.nn.MSELoss",), "MSELoss cannot compute the loss"),
    ],
)
def test_other_targets_are_refused_in_a_sentence(tmp_path, keys, said):
    with pytest.raises(ConfigurationError, match=said):
        last_row(tmp_path, *keys)


@pytest.mark.parametrize(
    ("form", "ignored", "key"),
    [
        ("ignored", -100, ()),
        ("minus", -1, ("+loss.ignore_index=-1",)),
        ("zero", 0, ("+loss.ignore_index=0",)),
    ],
)
def test_ignored_samples_count_nowhere(tmp_path, capsys, form, ignored, key):
    keys = (f"+data.form={form}", *key, "metrics=[f1]", "trainer.epochs=2", "callbacks=[predictions,worst_samples]")
    run = train(tmp_path, small(*LABELLED, *keys))
    outputs = torch.cat([run.update.model.eval()(batch.inputs) for batch in run.trainer.evaluation.loader.epoch(0)])
    labels = torch.cat([batch.content[1] for batch in run.trainer.evaluation.loader.epoch(0)])
    counts = labels != ignored
    right = (outputs.argmax(1) == labels)[counts].double().mean()
    row = rows(run.folder.epochs)[-1]
    assert float(row["val_acc1"]) == pytest.approx(100 * right.item())
    expected = nn.functional.cross_entropy(outputs[counts], labels[counts]).item()
    assert float(row["val_loss"]) == pytest.approx(expected, rel=1e-5)
    counted = counts.nonzero().flatten().tolist()
    with open(run.folder.path / "predictions.csv", newline="") as file:
        assert [int(line["id"]) for line in csv.DictReader(file)] == counted
    with open(run.folder.path / "worst_samples.csv", newline="") as file:
        assert {int(line["id"]) for line in csv.DictReader(file)} <= {*counted}
    said = f"training samples have the label {ignored}, which the loss ignores."
    assert " ".join(capsys.readouterr().out.split()).count(said) == 1


def test_a_label_that_is_ignored_only_later_is_refused_with_the_key():
    task = Classification(loss=nn.CrossEntropyLoss(), reduction="auto")
    with pytest.raises(ConfigurationError, match=r"the label -100 \(sample 3 .* Set \+loss.ignore_index=-100"):
        task.check(torch.eye(2, requires_grad=True), (None, torch.tensor([0, -100])), [0, 3])


def test_outputs_may_hold_logits_but_no_auxiliary_ones():
    task, batch = Classification(loss=nn.CrossEntropyLoss(), reduction="auto"), (None, torch.tensor([0, 1]))
    logits = torch.eye(2, requires_grad=True)
    task.check({"logits": logits}, batch, [0, 1])
    assert task.loss({"logits": logits}, batch) == task.loss(logits, batch)
    with pytest.raises(ConfigurationError, match=r"also returns aux_logits, .*\+model.aux_logits=false"):
        task.check({"logits": logits, "aux_logits": logits}, batch, [0, 1])
