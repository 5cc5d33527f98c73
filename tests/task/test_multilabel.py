"""Multilabel: labels from 0 to 1, for one class or more."""

import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.multilabel import Multilabel
from tests.in_process import rows, small, train

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


def test_one_label_and_one_logit_per_sample(tmp_path):
    row = rows(train(tmp_path, small(*KEYS)).folder.epochs)[-1]
    assert float(row["val_map"]) > 50
    assert float(row["val_acc"]) > 50
