"""What a selective recomputation keeps, and what it computes once more."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext
from torch.utils.flop_counter import FlopCounterMode

from manyheads.runner.answers.measure.rank.counted import SavedTensors
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.parallel.rank.recompute import Selection, recompute
from manyheads.runner.parallel.rank.units import find_units
from tests.torch_versions import from_torch

DEPTH, WIDTH, TOKENS = 2, 32, 64


def computed(setting: object) -> tuple[int, int]:
    """The bytes kept for the backward pass of a GPT, and the floating-point operations of both passes."""
    model = GPT(num_classes=11, depth=DEPTH, width=WIDTH, heads=2)
    if setting:
        recompute(find_units(model, "auto", key="parallel.units"), setting, key="parallel.recompute")
    saved = SavedTensors()
    with FlopCounterMode(display=False) as counted, saved.counting(model):
        model(torch.ones(1, TOKENS, dtype=torch.long)).sum().backward()
    return saved.most, counted.get_total_flops()


@from_torch("2.14")  # which lets hooks count what is selected
def test_a_selection_is_between_everything_and_nothing():
    """By arithmetic: keys, and what attention returns, are multiplied once more, not the first and third product."""
    (everything, once), (nothing, twice), (some, between) = map(computed, (False, True, "selective"))
    assert nothing < some < 0.6 * everything
    assert between - once == DEPTH * 2 * (2 * TOKENS * WIDTH * WIDTH)
    assert twice - once > 4 * (between - once)


def test_attention_that_draws_a_mask_is_computed_again():
    """Left out, it would not draw, and dropout after it would draw the mask that it drew before."""
    query, forward = torch.empty(1, 2, 4, 8, device="meta"), SelectiveCheckpointContext(is_recompute=False)
    attention = [
        ("flash_attention", ()),
        ("efficient_attention", (None, True)),
        ("cudnn_attention", (None, True)),
        ("flash_attention_for_cpu", ()),
    ]
    for name, others in attention:
        operation = getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default
        for p, policy in ((0.0, CheckpointPolicy.MUST_SAVE), (0.1, CheckpointPolicy.PREFER_RECOMPUTE)):
            assert Selection()(forward, operation, query, query, query, *others, p, True, scale=0.5) is policy


def test_what_is_kept_must_not_be_changed_in_place():
    block = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3))
    recompute({"block": block}, "selective", key="trainer.recompute")
    loss = block(torch.ones(1, 3)).sum()
    with pytest.raises(ConfigurationError, match=r"trainer\.recompute=selective: the model changes in place"):
        loss.backward()


@pytest.mark.parametrize("setting", [True, "selective"])
def test_running_statistics_would_count_twice(setting):
    with pytest.raises(ConfigurationError, match=r"parallel\.recompute: block has BatchNorm"):
        recompute({"block": nn.Sequential(nn.BatchNorm1d(3))}, setting, key="parallel.recompute")
