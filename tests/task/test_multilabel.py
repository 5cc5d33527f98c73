"""Multilabel: labels from 0 to 1, for one class or more."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from manyheads.runner.callbacks.rank.sample_rows import judged
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.evaluation import CollectedScores
from manyheads.runner.loop.scores import Scores
from manyheads.runner.metrics.rank.ranking import AUROC
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.task.rank.multilabel import Multilabel
from tests.in_process import rows, small, train
from tests.scikit_learn import reference

KEYS = (
    *("data=custom", "data._target_=tests.task.test_multilabel.Labels", "data.num_workers=0", "task=multilabel"),
    *("model=custom", "model._target_=tests.task.test_multilabel.OneLogit", "trainer.epochs=1"),
)


class Labels(torch.utils.data.Dataset):
    """Rows with one label."""

    def __init__(self, split: str):
        self.inputs = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        return self.inputs[index], float(self.inputs[index, 0] > 0)


class OneLogit(nn.Linear):
    """Logits (N,)."""

    def __init__(self):
        super().__init__(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs).squeeze(1)


@pytest.mark.parametrize("unknown", [-1.0, 255.0, float("nan")])
def test_labels_outside_0_to_1_are_refused(unknown):
    task = Multilabel(loss=nn.BCEWithLogitsLoss(), reduction="auto")
    labels = torch.tensor([[0.0, 1.0], [1.0, unknown]])
    with pytest.raises(ConfigurationError, match=rf"the label {unknown:g} \(sample 7 of the data set\) is not between"):
        task.check(torch.zeros(2, 2), (None, labels), [3, 7])


def test_labels_that_are_ignored_count_nowhere():
    torch.manual_seed(0)
    logits, labels = torch.randn(12, 3), torch.randint(2, (12, 3)).float()
    unknown = torch.rand(12, 3) < 0.4
    batch = None, labels.masked_fill(unknown, -1)
    weight = torch.tensor([1.0, 2.0, 3.0])
    task = Multilabel(loss=nn.BCEWithLogitsLoss(pos_weight=weight), reduction="auto", ignore_index=-1)
    task.check(logits, batch, range(12))
    losses = binary_cross_entropy_with_logits(logits, labels, pos_weight=weight, reduction="none")
    torch.testing.assert_close(task.loss(logits, batch), losses[~unknown].mean())
    assert task.count(batch) == (~unknown).sum()
    right = ((logits > 0) == (labels > 0))[~unknown]
    assert task.statistics(logits, batch) == {"right": right.sum(), "labels": right.numel()}
    said = task.check_epoch({"samples": torch.tensor(12), "labels": torch.tensor(right.numel())})
    assert said == f"{36 - right.numel()} of the training samples' 36 labels are -1, and ignored."
    collected = CollectedScores(
        Parallel(rank=0, local_rank=0, world_size=1, device_type="cpu"), Scores(task, [AUROC()], monitor="auto")
    )
    collected.add(logits, batch, range(12))
    by_class = [(logits[~unknown[:, c], c], labels[~unknown[:, c], c]) for c in range(3)]
    expected = np.mean([100 * reference("average_precision_score")(truth, scores) for scores, truth in by_class])
    assert collected.values()["map"] == pytest.approx(expected)
    expected = np.mean([100 * reference("roc_auc_score")(truth, scores) for scores, truth in by_class])
    assert collected.values()["auroc"] == pytest.approx(expected)
    _, ids, table = judged(task, logits, batch, range(12))
    kept = ~unknown.all(1)
    assert ids == kept.nonzero().flatten().tolist()
    plain = binary_cross_entropy_with_logits(logits, labels, reduction="none") * ~unknown
    np.testing.assert_allclose(table[:, 0], (plain.sum(1) / (~unknown).sum(1))[kept], rtol=1e-5)


def test_a_loss_of_all_labels_together_cannot_ignore_one():
    task = Multilabel(loss=nn.MultiLabelSoftMarginLoss(), reduction="auto", ignore_index=-1)
    with pytest.raises(ConfigurationError, match=r"task\.ignore_index=-1: MultiLabelSoftMarginLoss does not compute"):
        task.check(torch.zeros(2, 2), (None, torch.zeros(2, 2)), [0, 1])


def test_one_label_and_one_logit_per_sample(tmp_path):
    row = rows(train(tmp_path, small(*KEYS)).folder.epochs)[-1]
    assert float(row["val_map"]) > 50
    assert float(row["val_acc"]) > 50
