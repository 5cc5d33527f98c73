"""NaN in the data: the error names the sample, not the learning rate."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import RunFailed
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.task.rank.task import Task
from tests.in_process import small, train

OWN = (
    *("data=custom", "data._target_=tests.loop.test_non_finite.Rows", "data.num_workers=0", "data.batch_size=8"),
    *("model=mlp", "model.num_inputs=4", "trainer.epochs=2", "task=custom"),
    "task._target_=tests.loop.test_non_finite.Squares",
)


class Rows(Dataset):
    """Numbers, of which one in sample ``at`` is ``value``, in ``part``."""

    num_classes = 1

    def __init__(self, split: str, part: str = "input", at: int = 17, value: float = float("nan"), of: str = "train"):
        self.inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
        self.targets = self.inputs.sum(1, keepdim=True)
        self.paths = [f"rows/{number}.txt" for number in range(40)]
        if split == of:
            {"input": self.inputs, "target": self.targets}[part][at, 0] = value

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


class Named(Rows):
    @staticmethod
    def collate_fn(samples):
        return {"x": torch.stack([x for x, _ in samples]), "more": {"y": torch.stack([y for _, y in samples])}}


class Squares(Task):
    def inputs(self, batch):
        return batch["x"] if isinstance(batch, dict) else batch[0]

    def loss(self, outputs, batch):
        return (outputs - (batch["more"]["y"] if isinstance(batch, dict) else batch[1])).square().sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["+data.part=input"], "input of sample 17 (rows/17.txt) has nan"),
        (["+data.part=target", "+data.value=inf"], "target of sample 17 (rows/17.txt) has inf"),
        (["+data.at=0", "trainer.log_every=50"], "input of sample 0 (rows/0.txt) has nan"),
        (["trainer.grad_accumulation=4", "trainer.log_every=1"], "input of sample 17 (rows/17.txt) has nan"),
        (["trainer.on_spike=error"], "input of sample 17 (rows/17.txt) has nan"),
        (["data._target_=tests.loop.test_non_finite.Named", "+data.part=target"], "more y of sample 17 (rows/17.txt)"),
        (["data.val_fraction=0.2"], "input of sample 17 (rows/17.txt) has nan"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_the_sample_and_its_file_are_named(tmp_path, options, message):
    with pytest.raises(FloatingPointError) as caught:
        train(tmp_path, small(*OWN, *options))
    assert f"The data is not finite: the {message}" in str(caught.value)
    assert "if the model is meant to take such values" in str(caught.value)


def test_in_validation_data_it_is_named_once_and_training_continues(tmp_path, capsys):
    run = train(tmp_path, small(*OWN, "+data.of=val", "optimizer.lr=0.01"))
    assert run.trainer.done
    said = "warning: the val loss is nan. The data is not finite: the input of sample 17 (rows/17.txt) has nan."
    assert " ".join(capsys.readouterr().out.split()).count(said) == 1


def test_finite_data_is_not_to_blame(tmp_path):
    with pytest.raises(FloatingPointError, match=r"^the loss became (nan|inf) .*Lower optimizer\.lr, add") as caught:
        train(tmp_path, small(*OWN, "+data.at=0", "+data.value=1", "optimizer.lr=1e30"))
    assert "data is not finite" not in str(caught.value)


@pytest.mark.processes
def test_every_rank_names_the_sample_of_one_of_them(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_config(small(*OWN, "parallel=ddp", "launcher.nproc_per_node=2"))
    with pytest.raises(RunFailed, match=r"input of sample 17 \(rows/17\.txt\) has nan"):
        launch(prepare(folder))
