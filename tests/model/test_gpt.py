"""model=gpt: what makes it a causal language model, its sizes, and what it says of being taken apart."""

import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.gpt import SIZES
from manyheads.runner.model.rank.gpt import GPT, Rotation
from tests.in_process import config


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(1)
    return GPT(num_classes=11, depth=2, width=24, heads=3).double()


def test_no_token_sees_a_later_one(model):
    tokens = torch.randint(11, (2, 9))
    other = tokens.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 11
    assert torch.equal(model(tokens)[:, :6], model(other)[:, :6])
    assert not torch.equal(model(tokens)[:, 6], model(other)[:, 6])


def test_each_token_sees_the_order_of_the_earlier_ones(model):
    tokens = torch.tensor([[1, 2, 3, 4]])
    assert not torch.allclose(model(tokens)[0, -1], model(tokens[:, [1, 0, 2, 3]])[0, -1])


def test_positions_matter_by_their_distance_alone():
    rotation, (query, key) = Rotation(8), torch.randn(2, 8, dtype=torch.float64)
    turned = [rotation(vector.expand(1, 1, 20, 8))[0, 0] for vector in (query, key)]
    products = [turned[0][place] @ turned[1][place + 3] for place in (0, 5, 16)]
    torch.testing.assert_close(products, [products[0]] * 3)
    assert abs(turned[0][0] @ turned[1][4] - products[0]) > 1e-6
    assert torch.equal(turned[0][0], query)


def test_input_and_output_have_one_embedding(model):
    assert list(dict(model.named_parameters()))[0] == "embedding.weight"
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]
    model(torch.tensor([[3]])).sum().backward()
    assert model.embedding.weight.grad[4].abs().sum() > 0  # which was no input


@pytest.mark.parametrize(
    ("size", "millions"), [("nano", 0.12), ("small", 85), ("xl", 1475), ("7b", 6443)], ids=["nano", "small", "xl", "7b"]
)
def test_sizes_are_those_of_their_names(size, millions):
    with torch.device("meta"):
        made = GPT(num_classes=256, size=size)
    assert sum(p.numel() for p in made.parameters()) / 1e6 == pytest.approx(
        millions, rel=0.01 if size != "nano" else 0.1
    )
    assert len(made.blocks) == SIZES[size].depth


def test_what_it_says_of_being_taken_apart_is_there(model):
    names = dict(model.named_modules())
    for pattern, style in model.tensor_parallel_plan.items():
        module = names[pattern.replace("*", "1")]
        assert isinstance(module, nn.Linear) != (style == "scattered")
    assert {type(block).__name__ for block in model.blocks} == {*model._no_split_modules}


def test_heads_that_do_not_fit_the_width_are_refused_with_those_that_do():
    with pytest.raises(
        ConfigurationError, match=r"model\.width=48 can't be divided among model\.heads=5.* 1, 2, 3, 4, 6, 8, 12, 24"
    ):
        config("model=gpt", "model.heads=5")
