"""Targets: their form, the check of the first batch, and the bounds of every batch."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.task import Task
from tests.in_process import small, train

OWN = (
    *("data=custom", "data._target_=tests.task.test_targets.Rows", "data.num_workers=0", "data.batch_size=8"),
    *("model=mlp", "model.num_inputs=4", "trainer.epochs=1"),
    *("task=custom", "task._target_=tests.task.test_targets.Bounded"),
)


class Rows(Dataset):
    """Numbers, of which one of a split is ``value``."""

    num_classes = 1

    def __init__(self, split: str, *, at: int = -1, value: float = 0.0, of: str = "train"):
        self.inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
        self.targets = self.inputs.sum(1, keepdim=True).sigmoid()
        if split == of and at >= 0:
            self.targets[at] = value

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


class Bounded(Task):
    """Fractions."""

    bounds = (0, 1)

    def loss(self, outputs, batch):
        return (outputs - batch[1]).square().sum()

    def bounded(self, batch):
        return batch[1]


@pytest.mark.parametrize("value", [-0.5, 255.0, float("nan")])
@pytest.mark.parametrize("split", ["train", "val"])
def test_a_target_outside_the_bounds_is_refused_in_whichever_batch_it_comes(tmp_path, value, split):
    for number in (0, 39):  # in the first batch of an evaluation, which names the sample, and in the last
        named = f" (sample {number} of the data set)" if split == "val" and number == 0 else ""
        keys = (f"+data.at={number}", f"+data.value={value}", f"+data.of={split}")
        with pytest.raises(ConfigurationError) as refused:
            train(tmp_path / f"{number}", small(*OWN, *keys))
        assert f"the target {value:g}{named}" in str(refused.value) or split == "train"
        assert "is not between 0 and 1" in str(refused.value)


def test_targets_within_the_bounds_train(tmp_path):
    assert train(tmp_path, small(*OWN, "+data.at=3", "+data.value=1.0")).trainer.done
