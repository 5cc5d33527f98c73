"""Batches of any nesting."""

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyheads.runner.parallel.rank.structure import map_tensors, tensors_in, unrepeated


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


def test_what_a_tensor_repeats_is_handled_once():
    grey = torch.arange(8.0).reshape(2, 1, 2, 2)
    seen = []
    found = unrepeated(lambda held: seen.append(held) or held + 1, grey.expand(-1, 3, -1, -1))
    assert torch.equal(found, (grey + 1).expand(-1, 3, -1, -1))
    assert torch.equal(seen[0], grey)


def test_what_repeats_nothing_is_handled_as_it_is():
    for each in (torch.zeros(1, 3).expand(1, 3), torch.zeros(0, 3), torch.tensor(1.0), torch.zeros(2, 3).t()):
        assert unrepeated(lambda held: held, each) is each
