"""Where sequences are cut into pieces and put together, and what is refused before anything is."""

import pytest
import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.model.rank.mlp import MLP
from manyheads.runner.parallel.rank.model_parallel.sequence import Passage, Watched
from manyheads.runner.parallel.rank.model_parallel.tensor_plan import find_plan, find_scattered
from tests.parallel.models import Encoder, ViT

TOKENS = torch.zeros(2, 6, dtype=torch.int64)


def gpt() -> GPT:
    return GPT(num_classes=5, depth=2, width=12, heads=2)


def passage(model: nn.Module, inputs: Tensor, wanted="auto", *, size: int = 2) -> Passage:
    with Watched(model, find_scattered(model, wanted, find_plan(model, wanted))) as watched, torch.no_grad():
        model.eval()(inputs)
    return watched.passage(size)


def test_it_begins_with_the_first_block_and_ends_with_the_last_norm():
    found = passage(gpt(), TOKENS)
    assert found.modules == ["blocks.0", "blocks.1", "norm"]
    assert (found.enters, found.leaves) == ({"blocks.0"}, {"norm"})


def test_blocks_that_nobody_named_are_found():
    assert passage(Encoder(num_classes=5), TOKENS).modules == ["encoder.layers.0", "encoder.layers.1"]


def test_what_is_between_two_that_are_named_gets_whole_sequences():
    found = passage(gpt(), TOKENS, {"blocks.0": "scattered", "norm": "scattered"})
    assert found.enters == found.leaves == {"blocks.0", "norm"}


def test_gradients_are_in_parts_of_what_works_on_pieces_alone():
    model = gpt()
    partial = passage(model, TOKENS).partial(model)
    assert {name for name, weight in model.named_parameters() if name not in partial} == {"embedding.weight"}


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Encoder(num_classes=5).encoder.layers[0]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.block(self.block(hidden))


BLOCK = {"block.linear1": "colwise", "block.linear2": "rowwise", "block": "scattered"}


@pytest.mark.parametrize(
    ("model", "inputs", "wanted", "size", "words"),
    [
        (gpt(), TOKENS, "auto", 4, r"blocks\.0 is given sequences of length 6, which 4 ranks can't .*: 2, 3, 6\."),
        (ViT(num_classes=3), torch.zeros(2, 3, 16, 16), "auto", 2, r"encoder_layer_0 .* of length 5, .*: 5\."),
        (Twice(), torch.zeros(2, 6, 12), BLOCK, 2, r"block is called 2 times"),
        (
            MLP(num_inputs=8, num_classes=3, width=8, depth=2),
            torch.zeros(2, 8),
            {"layers": "scattered"},
            2,
            r"layers is given a tensor of shape \(2, 8\), not \(samples, length, width\)",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(model, inputs, wanted, size, words):
    with pytest.raises(ConfigurationError, match=words):
        passage(model, inputs, wanted, size=size)


def test_a_weight_that_is_used_outside_as_well_is_refused():
    model = gpt()
    model.norm.bias = model.blocks[0].attention_norm.bias
    found = passage(model, TOKENS, {"blocks.*": "scattered"})
    with pytest.raises(ConfigurationError, match=r"attention_norm\.bias is used by modules that take pieces"):
        found.partial(model)


def test_statistics_over_whole_sequences_are_refused():
    model = gpt()
    found = passage(model, TOKENS)
    model.blocks[1].feed_forward_norm = nn.BatchNorm1d(12)
    with pytest.raises(ConfigurationError, match=r"blocks\.1\.feed_forward_norm is of class BatchNorm1d"):
        found.apply(model, None)
