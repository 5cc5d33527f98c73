"""A mistake in the user's own model, data or loss is told in a sentence that names the key to set."""

import re

import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError, Failure, Kind
from manyheads.runner.loop import build, session
from manyheads.runner.loop.diagnosis import memory_explained, shapes
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import ALONE, small

HERE = "tests.loop.test_diagnosis"


class Flat(nn.Module):
    """Takes images of 4 x 4 and tells ``outputs`` classes apart."""

    def __init__(self, size: int = 4, outputs: int = 3):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, outputs))

    def forward(self, images):
        return self.body(images)


class Normalized(Flat):
    """Has statistics over the batch, of which there must be more than one sample."""

    def forward(self, images):
        return nn.functional.batch_norm(super().forward(images), None, None, training=True)


class Paired(Flat):
    """Wants two inputs."""

    def forward(self, images, more):
        return super().forward(images)


class Broken(Flat):
    """Has a mistake that is no matter of configuration."""

    def forward(self, images):
        return super().forward(images) + undefined  # noqa: F821


class Pictures(torch.utils.data.Dataset):
    """Pictures of three classes, of which the seventh has a label that is none."""

    num_classes = 3

    def __init__(self, split: str, wrong: int = 9):
        self.wrong = wrong if split == "train" else 0

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((3, 8, 8), index / 16), self.wrong if index == 7 else index % 3


class Absent(Pictures):
    """Reads an index that does not exist."""

    def __init__(self, split: str, root: str):
        with open(f"{root}/index.txt"):
            super().__init__(split)


def own(name: str, *more: str) -> tuple[str, ...]:
    return ("model=custom", f"model._target_={HERE}.{name}", *more)


FITS = own("Flat", "+model.size=8")
OWN_DATA = ("data=custom", f"data._target_={HERE}.Pictures", "data.num_workers=0")
MISTAKES = {
    "shape": (own("Flat"), "cannot take the data's inputs, (8, 3, 8, 8) float32. body.1 (Linear): "),
    "shape, size": (own("Flat"), "or data.image_size (now 8)."),
    "resized": (own("Flat", "+model.size=8", "trainer.resize_from=4"), "Set trainer.resize_from (now 4) to null, or"),
    "inputs": (own("Paired", "+model.size=8"), "missing 1 required positional argument: 'more'"),
    "classes": (
        own("Flat", "+model.size=8", "+model.outputs=5"),
        "returns 5 outputs per sample, but the data has 3",
    ),
    "label": (
        (*FITS, *OWN_DATA),
        "the label 9 (sample 7 of the data set) is not one of the model's 3 classes. Allowed: 0 to 2",
    ),
    "negative label": ((*FITS, *OWN_DATA, "+data.wrong=-1"), "the label -1 (sample 7 of the data set)"),
    "weights of the loss": (("+loss.weight=[1,2]",), "weight tensor should be defined either for all 3 classes"),
    "loss": (("loss._target_=torch.nn.BCEWithLogitsLoss",), "BCEWithLogitsLoss cannot compute the loss of the model's"),
    "one sample": (
        (*own("Normalized", "+model.size=8"), "data.batch_size=1"),
        "Set data.drop_last=true or another data.batch_size",
    ),
    "folder": (
        (*FITS, "data=custom", f"data._target_={HERE}.Absent", "data.root=/nowhere"),
        "/nowhere/index.txt does not exist. Set the key that names it, such as data.root.",
    ),
}


def run(path, *overrides: str) -> None:
    """What a rank does with the config of these overrides."""
    config, folder = small(*overrides), RunFolder(path)
    folder.write_config(config)
    frozen = RunConfig.of(config)
    parallel = build.join(frozen, **ALONE._asdict())
    session.work(frozen, parallel, folder, Heartbeat.create(folder.heartbeat, ranks=1))


@pytest.mark.parametrize(("overrides", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_in_a_sentence(tmp_path, overrides, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        run(tmp_path, *overrides)
    assert "\n" not in str(caught.value)


def test_an_error_of_another_kind_stays_as_it_is(tmp_path):
    with pytest.raises(NameError, match="undefined"):
        run(tmp_path, *own("Broken", "+model.size=8"))


def test_weights_of_classes_are_a_tensor_to_the_loss(tmp_path):
    run(tmp_path, "+loss.weight=[1,2,0.5]", "trainer.max_steps=2")


def test_too_little_memory_says_what_takes_less(tmp_path):
    with pytest.raises(RuntimeError, match=r"trainer\.grad_accumulation=4 .* data\.batch_size") as caught:
        run(tmp_path, "model.width=4000000", "trainer.grad_accumulation=2")
    assert Failure.of(caught.value).kind is Kind.OUT_OF_MEMORY


def test_a_share_that_cannot_be_halved_is_not_said_to_be():
    with pytest.raises(torch.OutOfMemoryError, match=r"Set a smaller data\.batch_size"), memory_explained(5, 1):
        raise torch.OutOfMemoryError("CUDA out of memory.")


def test_shapes_follow_the_structure():
    batch = {"ids": torch.zeros(2, 3, dtype=torch.int64), "more": (torch.zeros(1), "text")}
    assert shapes(batch) == "{ids: (2, 3) int64, more: [(1,) float32, str]}"
