"""Which modules are sharded as one."""

import pytest
from torch import nn
from torchvision.models import resnet18, swin_t, vit_b_16

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.model.rank.small_cnn import SmallCNN
from manyheads.runner.parallel.rank.units import find_units, listed_units


def gpt() -> GPT:
    return GPT(num_classes=5, depth=3, width=8, heads=2)


def test_a_model_that_names_its_blocks_is_taken_at_its_word():
    assert list(find_units(gpt(), "auto", key="parallel.units")) == ["blocks.0", "blocks.1", "blocks.2"]


@pytest.mark.parametrize(
    ("make", "count", "first"),
    [
        (vit_b_16, 12, "encoder.layers.encoder_layer_0"),
        (resnet18, 8, "layer1.0"),
        (swin_t, 15, "features.1.0"),
        (lambda: SmallCNN(num_classes=3, width=4), 0, None),
    ],
)
def test_the_blocks_of_others_are_found(make, count, first):
    found = find_units(make(), "auto", key="parallel.units")
    assert len(found) == count
    assert first is None or first in found


@pytest.mark.parametrize("wanted", [["blocks.*"], ["Block"], ["blocks.2", "blocks.0", "blocks.1"]])
def test_units_are_named_by_module_wildcard_or_class(wanted):
    assert sorted(find_units(gpt(), wanted, key="parallel.units")) == ["blocks.0", "blocks.1", "blocks.2"]


def test_inner_units_come_first():
    assert list(find_units(gpt(), ["blocks.1", "blocks.1.attention"], key="parallel.units")) == [
        "blocks.1.attention",
        "blocks.1",
    ]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight


@pytest.mark.parametrize(
    ("model", "wanted", "words"),
    [
        (
            gpt(),
            ["block"],
            r"no module or class named block\. It has modules such as embedding, .* and classes Attention",
        ),
        (gpt(), ["blocks"], r"blocks is only a container of modules\. Name its contents: blocks\.\*"),
        (Tied(), ["first", "last"], r"first and last share a weight"),
    ],
)
def test_what_can_be_no_unit_is_refused(model, wanted, words):
    with pytest.raises(ConfigurationError, match=words):
        find_units(model, wanted, key="parallel.units")


def test_a_setting_that_would_do_nothing_is_refused():
    with pytest.raises(ConfigurationError, match=r"trainer\.compile_units=\[auto\]: the model has no repeated blocks"):
        listed_units(SmallCNN(num_classes=3, width=4), ["auto"], key="trainer.compile_units")
    assert len(listed_units(gpt(), ["auto"], key="trainer.compile_units")) == 3
