"""Batches of any nesting."""

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyheads.runner.data.rank.structure import map_tensors, tensors_in


class Pair(NamedTuple):
    first: Tensor
    second: str


@dataclass
class Graph:
    nodes: Tensor
    name: str


class Encoding(UserDict):
    """As Hugging Face's tokenizers return it."""


def nested(one: Tensor) -> list:
    return [
        (one, [one, {"a": one, "b": "text"}]),
        Pair(one, "second"),
        Graph(one, "graph"),
        Encoding({"ids": one}),
        OrderedDict(z=one, y=2),
        None,
        3,
    ]


def test_every_tensor_is_mapped_and_all_else_stays():
    found = map_tensors(lambda tensor: tensor + 1, nested(torch.zeros(2)))
    assert [type(each) for each in found] == [type(each) for each in nested(torch.zeros(2))]
    assert len(list(tensors_in(found))) == 7
    assert all(tensor.tolist() == [1, 1] for tensor in tensors_in(found))
    assert (found[0][1][1]["b"], found[1].second, found[2].name, found[4]["y"], found[5:]) == (
        "text", "second", "graph", 2, [None, 3]
    )  # fmt: skip


def test_a_lone_tensor_is_a_structure_too():
    assert map_tensors(lambda tensor: tensor * 2, torch.ones(1)).tolist() == [2]
    assert list(tensors_in("nothing")) == []
