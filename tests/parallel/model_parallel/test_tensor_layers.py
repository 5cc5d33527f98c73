"""What several layers of a tensor-parallel group take enters it once; its gradient is summed as the layers compute."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from manyheads.runner.answers.measure.findings import Traffic
from manyheads.runner.answers.measure.rank.counted import CountedTraffic
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.parallel.rank.model_parallel.sequence import Watched
from manyheads.runner.parallel.rank.model_parallel.sequence_layers import PieceColumnLinear
from manyheads.runner.parallel.rank.model_parallel.tensor_plan import find_plan, find_scattered
from manyheads.runner.parallel.rank.model_parallel.tensor_split import split
from manyheads.runner.parallel.rank.recompute import recompute
from manyheads.runner.parallel.rank.units import find_units

SAMPLES, LENGTH, WIDTH = 2, 3, 8


@pytest.fixture(autouse=True)
def group():
    """The first of two ranks; the other one is not there, and needs not be."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield dist.group.WORLD
    dist.destroy_process_group()


def sums(compute: Callable[[], Tensor]) -> Traffic:
    """The all-reduces of a forward and a backward pass."""
    with CountedTraffic() as counted:
        compute().float().sum().backward()
    return counted.by_kind.get("all-reduce", Traffic(0, 0))


@pytest.mark.parametrize(("dtype", "size"), [(None, 4), (torch.bfloat16, 2)], ids=["fp32", "autocast"])
def test_a_block_sums_twice_forward_and_twice_backward(group, dtype, size):
    """After attention and after the feed-forward layer; back into either, all in the dtype of the layers."""
    depth = 2
    model = GPT(num_classes=11, depth=depth, width=WIDTH, heads=2)
    split(model, find_plan(model, "auto"), group, rank=0, size=2)
    tokens = torch.ones(SAMPLES, LENGTH, dtype=torch.long)
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        found = sums(lambda: model(tokens))
    assert found == Traffic(4 * depth, 4 * depth * SAMPLES * LENGTH * WIDTH * size)


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_s_gradient_is_summed_once_in_the_dtype_of_autocast(group, batch_first):
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first)})
    split(model, {"attention": "attention"}, group, rank=0, size=2)
    inputs = torch.ones(SAMPLES, LENGTH, WIDTH, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = sums(lambda: model["attention"](inputs, inputs, inputs)[0])
    assert found == Traffic(2, 2 * SAMPLES * LENGTH * WIDTH * 2)
    assert inputs.grad is not None
    assert inputs.grad.dtype is torch.float32


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "autocast"])
def test_pieces_are_gathered_in_the_dtype_of_the_layers(group, dtype):
    layer = nn.ModuleDict({"up": nn.Linear(WIDTH, WIDTH), "down": nn.Linear(WIDTH, WIDTH)})
    split(layer, {"up": "colwise", "down": "rowwise"}, group, rank=0, size=2)
    layer["up"].__class__, piece = PieceColumnLinear, torch.ones(SAMPLES, LENGTH, WIDTH, requires_grad=True)
    with torch.autocast("cpu", dtype, enabled=dtype is not None), CountedTraffic() as counted:
        layer["up"](piece).float().sum().backward()
    whole = 2 * SAMPLES * LENGTH * WIDTH * (dtype or torch.float32).itemsize
    assert counted.by_kind == {"all-gather": Traffic(2, 2 * whole), "reduce-scatter": Traffic(1, whole)}


class Twins(nn.Module):
    """Two layers of what ``between`` makes of the input for each."""

    def __init__(self, between: Callable[[Tensor], Tensor]):
        super().__init__()
        self.one, self.other, self.between = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), between

    def forward(self, inputs: Tensor) -> Tensor:
        return self.one(inputs).sum() + self.other(self.between(inputs)).sum()


def twins(group: object, between: Callable[[Tensor], Tensor]) -> Twins:
    model = Twins(between)
    split(model, {"one": "colwise", "other": "colwise"}, group, rank=0, size=2)
    return model


@pytest.mark.parametrize(
    ("between", "calls"),
    [(lambda inputs: inputs, 1), (lambda inputs: inputs + 1, 2), (lambda inputs: inputs.add_(1), 2)],
)
def test_only_the_same_values_enter_once(group, between, calls):
    model, leaf = twins(group, between), torch.ones(SAMPLES, WIDTH, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):  # what has entered is a copy, which no change in place reaches
        assert sums(lambda: model(leaf * 1)).calls == calls


def test_a_layer_without_gradients_leaves_another_s_alone(group):
    model, inputs = twins(group, lambda inputs: inputs), torch.ones(SAMPLES, WIDTH, requires_grad=True)
    frozen = torch.no_grad()(model.one.forward)
    model.one.forward = frozen
    assert sums(lambda: model(inputs)).calls == 1


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_kept_after_the_call(group, fails):
    def between(inputs: Tensor) -> Tensor:
        if fails:
            raise ValueError
        return inputs

    model, inputs = twins(group, between), torch.ones(SAMPLES, WIDTH)
    given = weakref.ref(inputs)
    try:
        model(inputs)
    except ValueError:
        assert fails
    del inputs
    gc.collect()
    assert given() is None


def test_a_layer_that_is_called_by_itself_enters(group):
    model, inputs = twins(group, lambda inputs: inputs), torch.ones(SAMPLES, WIDTH, requires_grad=True)
    assert sums(lambda: model.one(inputs) + model.other(inputs)).calls == 2


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "autocast"])
def test_a_block_gathers_pieces_once_for_query_key_and_value(group, dtype, recomputes):
    """Before attention and the feed-forward layer, in each pass; and the gradients of what both of them return."""
    depth, size = 2, (dtype or torch.float32).itemsize
    model, tokens = GPT(num_classes=11, depth=depth, width=WIDTH, heads=2), torch.ones(SAMPLES, 4, dtype=torch.long)
    plan = find_plan(model, "auto")
    with Watched(model, find_scattered(model, "auto", plan)) as watched, torch.no_grad():
        model(tokens)
    split(model, plan, group, rank=0, size=2)
    watched.passage(2).apply(model, group)
    if recomputes:
        recompute(find_units(model, "auto", key="trainer.recompute"), True, key="parallel.recompute")
    with torch.autocast("cpu", dtype, enabled=dtype is not None), CountedTraffic() as counted:
        model(tokens).float().sum().backward()
    sequences = SAMPLES * 4 * WIDTH * size
    gathers, reductions = counted.by_kind["all-gather"], counted.by_kind["reduce-scatter"]
    ends = 2  # what the first block takes is split, whose gradient is gathered; what the last norm returns is gathered
    assert gathers.calls == (6 + 2 * recomputes) * depth + ends
    assert reductions.calls == (4 + recomputes) * depth  # recomputing stops before the last one
    assert reductions.bytes == reductions.calls * sequences
