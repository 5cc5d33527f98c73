"""Masks: every form whose meaning is clear trains the same, and any other is refused with the values seen."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from manyheads.runner.errors import ConfigurationError
from tests.in_process import small, train

OWN = (
    *("task=segmentation", "data=custom", "data._target_=tests.task.test_segmentation.Squares", "data.num_workers=0"),
    *("model=custom", "model._target_=tests.task.test_segmentation.Pixels", "data.batch_size=8", "trainer.epochs=1"),
)


class Squares(Dataset):
    """Bright squares on dark ground; their masks are stored as ``form``."""

    num_classes = 2

    def __init__(self, split: str, form: str = "int64", classes: int = 2):
        generator = torch.Generator().manual_seed(len(split))
        self.masks = torch.zeros(16, 8, 8, dtype=torch.int64)
        for mask, corner in zip(self.masks, torch.randint(5, (16, 2), generator=generator).tolist(), strict=True):
            mask[corner[0] : corner[0] + 3, corner[1] : corner[1] + 3] = 1
        self.images = torch.rand(16, 3, 8, 8, generator=generator) + self.masks[:, None]
        self.form, self.num_classes = form, classes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        mask = self.masks[index]
        forms = {"channel": mask[None], "read by ToTensor": mask / 255, "soft": mask * 0.9, "0 and 255": mask * 255}
        forms |= {"out of range": mask * 7, "unknown": mask / 0, "floats": mask[None].float()}
        return self.images[index], forms[self.form] if self.form in forms else mask.to(getattr(torch, self.form))


class Pixels(nn.Conv2d):
    def __init__(self, num_classes: int):
        super().__init__(3, num_classes, 1)


def losses(folder, form: str) -> str:
    return train(folder, small(*OWN, f"+data.form={form}")).folder.read_result()["metrics"]


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    return losses(tmp_path_factory.mktemp("masks"), "int64")


@pytest.mark.parametrize("form", ["uint8", "int32", "bool", "float64", "floats", "channel"])
def test_every_clear_form_gives_the_same_results(right, tmp_path, form):
    measured = losses(tmp_path, form)
    assert {name: measured[name] for name in ("val_loss", "val_miou")} == {
        name: right[name] for name in ("val_loss", "val_miou")
    }


REFUSED = {
    "read by ToTensor": r"masks contain 0\.003922\. Masks are class numbers, 0 to 1, or 255 .*PILToTensor",
    "soft": r"masks contain 0\.9\.",
    "unknown": r"masks contain nan",
    "out of range": r"masks contain 7 \(sample \d+(, \d+)* of the data set\)\..*the values 0, 7\.",
    "0 and 255": r"no pixel that counts but of class 0, in all of an epoch.*the values 0, 255\..*0 and 255 by 255",
}


@pytest.mark.parametrize(("form", "message"), REFUSED.items(), ids=REFUSED)
def test_masks_that_are_not_class_numbers_are_refused(tmp_path, form, message):
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, small(*OWN, f"+data.form={form}"))


def test_a_class_that_never_occurs_is_reported(tmp_path, capsys):
    train(tmp_path, small(*OWN, "+data.classes=4"))
    assert "warning: no pixel of the training masks has class 2, 3, of 4 classes." in capsys.readouterr().out
