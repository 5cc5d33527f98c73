"""Regression: outputs and targets are compared without rounding either."""

import pytest
import torch
from torch import nn

from manyheads.runner.task.rank.regression import Regression
from tests.in_process import rows, small, train


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_targets_keep_their_precision(dtype):
    task = Regression(loss=nn.MSELoss(), reduction="auto")
    batch = None, torch.tensor([1987.0, 70000.0])
    outputs = torch.tensor([1990.0, 60000.0]).to(dtype)
    exact = outputs.double() - batch[1].double()
    assert task.loss(outputs, batch).item() == pytest.approx(exact.square().mean().item(), rel=1e-6)
    assert task.statistics(outputs, batch)["apart"] == exact.abs().sum()
    assert torch.equal(task.scored(outputs, batch)[1], batch[1])


def test_targets_of_fp64_are_not_rounded_to_fp32():
    task, targets = Regression(loss=nn.L1Loss(), reduction="auto"), torch.tensor([1.7e9 + 0.25], dtype=torch.float64)
    assert task.loss(torch.tensor([1.7e9]), (None, targets)) == 0.25


def test_a_run_measures_r2_of_each_output(tmp_path):
    """Of two outputs whose means are apart, predicting the means explains nothing."""
    own = ("data=custom", "data._target_=tests.task.test_regression.Apart", "data.num_workers=0", "model=custom")
    keys = (
        "model._target_=tests.task.test_regression.Means",
        "task=regression",
        "optimizer.lr=1e-30",
        "trainer.epochs=1",
    )
    row = rows(train(tmp_path, small(*own, *keys)).folder.epochs)[-1]
    assert float(row["val_r2"]) == pytest.approx(0, abs=1e-9)
    assert float(row["val_mae"]) == 1


class Apart(torch.utils.data.Dataset):
    """Targets 1 ± 1 and 1000 ± 1."""

    def __init__(self, split: str):
        pass

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(1), torch.tensor([1.0, 1000.0]) + (1 if index % 2 else -1)


class Means(nn.Module):
    """The targets' means."""

    def __init__(self):
        super().__init__()
        self.means = nn.Parameter(torch.tensor([1.0, 1000.0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.means.expand(len(inputs), 2)
