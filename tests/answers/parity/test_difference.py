"""How far apart tensors are said to be."""

import math

import pytest
import torch
from torch import nn

from manyheads.runner.answers.measure.rank.difference import FLOOR, differences, digests, factor, unlike

ONE = {"large": torch.tensor([4.0, -8.0]), "small": torch.tensor([1e-20])}


def test_a_difference_is_relative_to_the_tensor_s_largest_entry():
    own = {"large": torch.tensor([4.0, -8.4]), "small": torch.tensor([1e-20])}
    assert differences(ONE, own) == {"large": pytest.approx(0.05), "small": 0.0}


def test_what_is_zero_but_for_rounding_is_no_alarm():
    found = differences(ONE, {**ONE, "small": torch.tensor([-3e-17])})
    assert found["small"] == pytest.approx(3e-17 / (FLOOR * 8), rel=1e-2)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_differs_on_either_side_and_on_both(value):
    bad = {"large": torch.tensor([4.0, value])}
    good = {"large": ONE["large"]}
    for one, other in ((bad, good), (good, bad), (bad, bad)):
        assert differences(one, other)["large"] == math.inf


def test_no_gradient_is_one_of_zeros():
    none = {"a": ONE["large"], "b": None}
    assert differences(none, {"a": ONE["large"], "b": torch.zeros(3)}) == {"a": 0.0, "b": 0.0}
    assert differences(none, {"a": ONE["large"], "b": None})["b"] == 0.0
    assert differences(none, {"a": ONE["large"], "b": torch.tensor([0.08])})["b"] == pytest.approx(1.0)
    assert differences({"b": None}, {"b": torch.ones(1)})["b"] == math.inf


def test_other_names_and_other_shapes_differ():
    assert differences({"a": torch.ones(2)}, {"b": torch.ones(2)}) == {"a": math.inf, "b": math.inf}
    assert differences({"a": torch.ones(2)}, {"a": torch.ones(3)}) == {"a": math.inf}


def test_whole_numbers_and_empty_tensors_have_differences_too():
    counts = {"batches": torch.tensor(4), "none": torch.zeros(0)}
    assert differences(counts, {"batches": torch.tensor(5), "none": torch.zeros(0)}) == {"batches": 0.25, "none": 0.0}


def test_one_factor_for_all():
    doubled = {name: 2 * tensor for name, tensor in ONE.items()}
    assert factor(ONE, doubled, 1e-9) == pytest.approx(2)
    assert factor(ONE, {**doubled, "large": ONE["large"] * torch.tensor([2.0, 2.1])}, 1e-9) is None
    assert factor({"a": None}, {"a": None}, 1e-9) is None
    assert factor({"a": torch.tensor([math.nan])}, {"a": torch.ones(1)}, 1e-9) is None


def test_digests_cover_buffers_that_no_checkpoint_holds():
    def model(scale: float) -> nn.Module:
        torch.manual_seed(1)
        made = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        made.register_buffer("scale", torch.tensor(scale), persistent=False)
        return made

    assert unlike(digests(model(1)), digests(model(1))) == {"parameter": [], "buffer": []}
    assert unlike(digests(model(1)), digests(model(2))) == {"parameter": [], "buffer": ["scale"]}
    torch.nn.init.zeros_((other := model(1))[0].bias)
    assert unlike(digests(model(1)), digests(other))["parameter"] == ["0.bias"]
