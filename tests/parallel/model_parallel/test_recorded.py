"""A model that is built without its values gets those that it would have had, to the bit, or is built as usual."""

import gc

import pytest
import torch
import torchvision
from torch import nn

from manyheads.runner.data.rank.rng import get_state
from manyheads.runner.loop.deferred_build import built
from manyheads.runner.model.rank.build_model import Built
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.parallel.rank.model_parallel.deferred import tensors_of


class Inits(nn.Module):
    """torch's own ways of initialization, of weights that are set, tied, changed, copied, and read."""

    def __init__(self):
        super().__init__()
        self.orthogonal, self.cut, self.sparse = (nn.Linear(48, 48) for _ in range(3))
        nn.init.orthogonal_(self.orthogonal.weight)
        nn.init.trunc_normal_(self.cut.weight, std=0.02)
        nn.init.trunc_normal_(self.cut.weight[:40], std=0.02, a=0.01, b=0.1)
        nn.init.sparse_(self.sparse.weight, 0.1)
        self.padded = nn.Embedding(100, 48, padding_idx=3)
        self.drawn = nn.Parameter(torch.randn(48, 48) / 7)
        generator = torch.Generator().manual_seed(5)
        self.other = nn.Parameter(torch.empty(48, 48).normal_(generator=generator))
        self.sum = float(self.drawn.detach().abs().sum())
        with torch.no_grad():
            self.drawn[0] = self.orthogonal.weight[1]
        self.orthogonal.weight.data.mul_(self.sum)
        self.tied = nn.Linear(48, 48)
        self.tied.weight = self.other
        self.rounded = nn.Parameter(self.cut.weight.detach().clone().half())
        self.register_buffer("mask", torch.tril(torch.ones(48, 48)).bool(), persistent=False)
        self.small = nn.Parameter(torch.randn(3))


MODELS = {
    "gpt": lambda: GPT(num_classes=50, size="nano"),
    "inits": Inits,
    "transformer": lambda: nn.Transformer(48, 4, 2, 2, 96, batch_first=True),
    "resnet18": lambda: torchvision.models.resnet18(num_classes=3),
    "mobilenet": lambda: torchvision.models.mobilenet_v3_small(num_classes=3),
    "half": lambda: GPT(num_classes=50, size="nano").double(),
}


class Rank:
    """What building asks of a strategy."""

    mesh = "a mesh"
    deferred = None
    built_whole = ""
    beats = 0

    def beat(self):
        self.beats += 1


def build(model):
    """The model as a rank builds it, with the rank."""
    rank = Rank()
    return built(lambda **_: Built(model()), rank).model, rank


def complete(model, rank):
    """The model with all its values."""
    rank.deferred.complete(model, beat=rank.beat)
    return tensors_of(model)


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_building_it_as_usual(name):
    torch.manual_seed(3)
    usual, state = MODELS[name](), get_state()
    torch.manual_seed(3)
    model, rank = build(MODELS[name])
    assert torch.equal(get_state()["torch"], state["torch"])
    assert rank.built_whole == ""
    expected = tensors_of(usual)
    assert all(tensor.is_meta for tensor in tensors_of(model).values() if tensor.numel() >= 1024)
    values = complete(model, rank)
    for one, tensor in expected.items():
        assert values[one].dtype == tensor.dtype
        assert torch.equal(values[one], tensor), one
        assert type(values[one]) is type(tensor)
        assert [values[one] is other for other in values.values()] == [tensor is other for other in expected.values()]
    assert rank.beats


class Written(nn.Module):
    """Writes into a weight's memory past torch's operations."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(48, 48))
        self.weight.detach().numpy()[:] = 7


class Kept(nn.Module):
    """Keeps a tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 48)
        self.angles = torch.ones(48, 48).cumsum(0)


class Changing(nn.Module):
    """Copies from a tensor that changes later."""

    def __init__(self):
        super().__init__()
        values = torch.arange(48.0 * 48).view(48, 48)
        self.linear = nn.Linear(48, 48)
        with torch.no_grad():
            self.linear.weight.copy_(values)
        values.zero_()


WHOLE = {
    "written": (Written, "it calls Tensor.numpy"),
    "kept": (Kept, "it keeps tensors that are neither parameters nor buffers"),
    "lazy": (lambda: nn.Sequential(nn.Linear(48, 48), nn.LazyLinear(3)), "it has lazy modules"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_cant_be_recorded_is_built_as_usual_and_said(name):
    model, why = WHOLE[name]
    torch.manual_seed(3)
    usual, state = model(), get_state()
    torch.manual_seed(3)
    other, rank = build(model)
    assert rank.deferred is None
    assert why in rank.built_whole
    assert torch.equal(get_state()["torch"], state["torch"])
    for one, tensor in tensors_of(usual).items():
        if not isinstance(tensor, nn.UninitializedParameter):
            assert torch.equal(tensors_of(other)[one], tensor)


def test_a_constant_that_changed_is_noticed_when_values_are_computed():
    torch.manual_seed(3)
    usual = Changing()
    torch.manual_seed(3)
    model, rank = build(Changing)
    assert rank.built_whole == ""
    assert torch.equal(complete(model, rank)["linear.weight"], usual.linear.weight)
    gc.collect()
