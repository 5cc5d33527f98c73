"""Which layers are split over ranks, and what is refused before anything is."""

import pytest
import torch
from torch import nn
from torchvision.models import vit_b_16

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.model.rank.small_cnn import SmallCNN
from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Cut
from manyheads.runner.parallel.rank.model_parallel.tensor_plan import find_plan
from manyheads.runner.parallel.rank.model_parallel.tensor_split import split


def gpt(**given) -> GPT:
    return GPT(**({"num_classes": 5, "depth": 1, "width": 12, "heads": 3} | given))


def test_a_model_s_own_plan_and_the_one_found_from_its_shapes_are_the_same():
    model = gpt()
    own = find_plan(model, "auto")
    model.tensor_parallel_plan = None
    assert find_plan(model, "auto") == own
    assert list(own.values()) == [*["colwise"] * 3, "rowwise", "colwise", "rowwise"]


def test_attention_and_mlps_of_torchvision_are_found():
    with torch.device("meta"):
        plan = find_plan(vit_b_16(), "auto")
    assert sorted({*plan.values()}) == ["attention", "colwise", "rowwise"]
    assert len(plan) == 36


def test_neighbouring_convolutions_are_paired_from_the_end():
    assert find_plan(SmallCNN(num_classes=3, width=4), "auto") == {"features.3": "colwise", "features.6": "rowwise"}


@pytest.mark.parametrize(("dim", "blocks"), [(0, 1), (0, 3), (1, 1)])
def test_a_cut_is_put_together_again(dim, blocks):
    whole = torch.randn(12, 6)
    parts = [Cut(dim, blocks).part(whole, rank, 2) for rank in range(2)]
    assert torch.equal(Cut(dim, blocks).whole(parts), whole)
    assert parts[0].numel() == whole.numel() // 2


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.other = nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 8)
        self.other.weight = self.up.weight


@pytest.mark.parametrize(
    ("model", "wanted", "words"),
    [
        (nn.Linear(2, 2), "auto", r"Linear has no layers that parallel=tensor can split"),
        (gpt(), {"blocks.*.norm": "colwise"}, r"has no module blocks\.\*\.norm"),
        (gpt(), {"norm": "colwise"}, r"norm is of class LayerNorm; only nn\.Linear"),
        (gpt(), {"norm": "column"}, r"norm has the style 'column'\. Allowed: colwise, rowwise, attention"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(model, wanted, words):
    with pytest.raises(ConfigurationError, match=words):
        find_plan(model, wanted)


@pytest.mark.parametrize(
    ("model", "size", "words"),
    [
        (gpt(), 2, r"query has 3 heads, which can't be divided among 2 ranks\. Numbers of ranks that work: 3\."),
        (nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 4)), 2, r"0\.weight has 9 parts for 2 ranks"),
        (Tied(), 2, r"(up|other)\.weight is also (up|other)\.weight"),
    ],
)
def test_layers_that_ranks_cannot_share_are_refused(model, size, words):
    plan = {"up": "colwise", "down": "rowwise"} if isinstance(model, Tied) else find_plan(model, "auto")
    with pytest.raises(ConfigurationError, match=words):
        split(model, plan, None, rank=0, size=size)
