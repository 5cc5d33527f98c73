"""Where a model can be cut into stages, and that stages one after the other compute what the whole does."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import mobilenet_v3_small, resnet18

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.model.rank.small_cnn import SmallCNN
from manyheads.runner.parallel.rank.model_parallel.flow import follow, twin_of
from manyheads.runner.parallel.rank.model_parallel.stages import Stages, choose_windows
from tests.parallel.models import ViT

IMAGES, TOKENS = torch.randn(2, 3, 16, 16), torch.randint(11, (2, 5))


def gpt() -> GPT:
    return GPT(num_classes=11, depth=3, width=8, heads=2)


MODELS = {
    "gpt": (gpt, TOKENS),
    "vit": (lambda: ViT(num_classes=3), IMAGES),
    "cnn": (lambda: SmallCNN(num_classes=3, width=4), IMAGES),
    "resnet": (resnet18, IMAGES),
    "mobilenet": (mobilenet_v3_small, IMAGES.repeat(1, 1, 2, 2)),
}


def places(model: nn.Module, inputs: Tensor) -> list[str]:
    return [*follow(twin_of(model), inputs).places()]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [2, 3])
def test_stages_one_after_the_other_compute_what_the_whole_does(name, count):
    torch.manual_seed(1)
    whole, inputs = MODELS[name][0]().eval(), MODELS[name][1]
    twin = twin_of(whole)
    flow = follow(twin, inputs)
    windows = choose_windows(flow, whole, count, "auto")
    carried, held = inputs, 0
    for window in windows:
        part = copy.deepcopy(whole)
        stages = Stages(part, flow, windows, [window.number])
        held += sum(p.numel() for p in part.parameters())
        given = inputs if window.number == 0 else inputs.to("meta")
        carried = stages.run(window, given, flow, None if window.number == 0 else carried)
        assert {*part.state_dict()} < {*whole.state_dict()}
    assert torch.equal(carried, whole(inputs))
    shared = whole.embedding.weight.numel() if name == "gpt" else 0
    assert held == sum(p.numel() for p in whole.parameters()) + shared


def test_what_one_size_of_batch_showed_is_not_taken_for_another_s():
    """Also where the later flow lies at the same place in memory as one that is gone."""
    whole, images = ViT(num_classes=3).eval(), torch.randn(7, 3, 16, 16)
    twin = twin_of(whole)
    flow = follow(twin, images)
    first, last = choose_windows(flow, whole, 2, "auto")
    stages = [Stages(copy.deepcopy(whole), flow, [first, last], [number]) for number in (0, 1)]
    for rows in range(1, 7):
        flow = None  # gone before the next one is made
        flow = follow(twin, images[:rows])
        carried = stages[0].run(first, images[:rows], flow, None)
        found = stages[1].run(last, images[:rows].to("meta"), flow, carried)
        assert torch.equal(found, whole(images[:rows]))


def test_a_transformer_is_cut_between_its_blocks_and_never_inside():
    assert places(gpt(), TOKENS) == ["blocks.0", "blocks.1", "blocks.2", "norm"]


def test_stages_are_balanced_by_their_parameters():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)), nn.Linear(8, 64), nn.Linear(64, 8))
    flow = follow(twin_of(model), torch.randn(2, 8))
    assert [window.begin for window in choose_windows(flow, model, 3, "auto")] == [None, "6", "7"]


class Skipping(nn.Module):
    """What goes in at the front is added at the back, so that two tensors go across everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        early = self.first(inputs)
        return self.last(self.middle(early)) + early


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.gate(inputs)


class Gate(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs if math.isnan(inputs.sum().item()) else super().forward(inputs)


def test_a_model_that_cannot_be_cut_says_which_module_stands_in_the_way():
    model = Skipping()
    flow = follow(twin_of(model), torch.randn(2, 4))
    words = r"Skipping can be cut at 0 points, too few for 2 stages\. None can begin at .*; nor at last, because 1 more"
    with pytest.raises(ConfigurationError, match=words):
        choose_windows(flow, model, 2, "auto")
    model = gpt()
    flow = follow(twin_of(model), TOKENS)
    words = (
        r"no stage can begin at blocks\.1\.feed_forward: 1 more tensor bypasses it, .* It can at blocks\.0, blocks\.1"
    )
    with pytest.raises(ConfigurationError, match=words):
        choose_windows(flow, model, 2, ["blocks.1.feed_forward"])
    with pytest.raises(ConfigurationError, match=r"names 1 modules, where the 3 stages need 2"):
        choose_windows(flow, model, 3, ["blocks.1"])


def test_a_model_that_depends_on_the_data_names_the_module():
    with pytest.raises(ConfigurationError, match=r"gate \(Gate\) cannot be traced without data"):
        follow(twin_of(Deciding()), torch.randn(2, 4))
