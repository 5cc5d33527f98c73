"""What ranks would refuse is known before there is a run; what the meta device cannot do refuses nothing."""

import pytest
import torch
from torch import nn

from manyheads.runner.loop import preflight
from manyheads.runner.loop.preflight import refusal
from tests.in_process import typed

IMAGES = ("data=synthetic", "data.image_size=8", "data.num_classes=2")
MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4, classes=2):
        super().__init__()
        self.body = nn.Linear(3 * 8 * 8, width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        return self.head(self.body(images.flatten(1)))

class Values(Net):  # needs values, which the meta device does not have
    def __init__(self, **keys):
        super().__init__(**keys)
        self.scale = float(self.body.weight.detach().abs().mean().item())

class Branches(Net):
    def forward(self, images):
        return super().forward(images) if images.mean() > 0 else torch.zeros(1)

class OwnLoss(Net):
    def forward(self, images, targets=None):
        outputs = super().forward(images)
        return outputs, None if targets is None else nn.functional.cross_entropy(outputs, targets)

class Refuses(Net):
    def __init__(self):
        from manyheads.runner.errors import ConfigurationError
        super().__init__()
        if self.body.weight.is_meta:
            raise ConfigurationError("meta tensors")

class Crashes(Net):
    def __init__(self):
        raise ZeroDivisionError

class Confused(Net):
    def forward(self, images):
        return None + 1

class Samples:
    num_classes = 2
    def __init__(self, split, size=8):
        raise AssertionError("reads files")
"""


@pytest.fixture
def model(tmp_path):
    """``model._target_`` of a class in a file."""
    (tmp_path / "mine.py").write_text(MODELS)
    return lambda name: ("model=custom", f"model._target_={tmp_path}/mine.py:{name}")


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("Net", ("+model.widht=8",), "unexpected keyword argument 'widht'. Did you mean width?"),
        ("Net", ("+model.classes=3",), "the model returns 3 outputs per sample, but the data has 2 classes"),
        ("Values", ("+model.widht=8",), ""),  # cannot be built here at all
        ("Net", ("+callbacks.a._target_=torch.nn.Lineer",), "torch.nn has no Lineer. Did you mean Linear"),
        ("Net", (), ""),
        ("Values", (), ""),
        ("Branches", ("+model.classes=3",), ""),
        ("OwnLoss", ("task=own_loss", "task.loss_over=samples"), ""),
        ("Refuses", (), ""),
        ("Crashes", (), ""),
        ("Confused", (), ""),
    ],
)
def test_only_what_is_wrong_is_refused(model, name, more, expected):
    found = str(refusal(typed(*IMAGES, *model(name), *more)) or "")
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_fault_of_a_check_is_not_hidden(model, monkeypatch):
    monkeypatch.setattr(preflight, "_step", lambda: None)  # which is asked with a run
    with pytest.raises(TypeError, match="takes 0 positional arguments"):
        refusal(typed(*IMAGES, *model("Net")))


def test_data_of_the_users_own_is_not_read(model, tmp_path):
    data = ("data=custom", f"data._target_={tmp_path}/mine.py:Samples")
    assert refusal(typed(*data, *model("Net"))) is None
    found = refusal(typed(*data, "+data.sise=9", *model("Net")))
    assert "unexpected keyword argument 'sise'. Did you mean size?" in str(found)


def test_nothing_takes_memory(model, monkeypatch):
    """A model larger than this machine is built in no time."""
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda _: None)
    assert refusal(typed(*IMAGES, *model("Net"), f"+model.width={10**10}")) is None
    assert torch.empty(1).device.type == "cpu"


@pytest.mark.parametrize(
    "words",
    [
        ("task=multilabel", "data=shapes_multilabel"),
        ("task=segmentation", "data=shapes", "model=lraspp_mobilenet_v3_large"),
        ("task=own_loss", "data=stdlib_text", "model=gpt"),
        ("task=regression", "data=diabetes", "model=mlp"),
    ],
)
def test_labels_of_other_tasks_are_not_made_up(words):
    assert refusal(typed(*words)) is None
