"""Any part of a stored tensor is read, whatever pieces it was written in: other ranks want other parts."""

from itertools import pairwise, product

import pytest
import torch

from manyheads.runner.checkpoint.sharded.index import Box, Piece, TensorEntry
from manyheads.runner.checkpoint.sharded.rank.read_sharded import Stored
from manyheads.runner.checkpoint.sharded.safetensors_file import TensorKind

WHOLE = torch.arange(7.0 * 6).reshape(7, 6)
# By rows, as shards; by columns, as split layers; by both.
CUTS = {"rows": ((0, 3, 4, 7), (0, 6)), "columns": ((0, 7), (0, 2, 6)), "blocks": ((0, 4, 7), (0, 3, 6))}


@pytest.fixture(params=CUTS)
def stored(request, tmp_path) -> Stored:
    pieces = []
    for number, (rows, columns) in enumerate(product(*map(neighbours, CUTS[request.param]))):
        box = Box((rows[0], columns[0]), (rows[1] - rows[0], columns[1] - columns[0]))
        content = WHOLE[slice(*rows), slice(*columns)].contiguous().numpy().tobytes()
        (tmp_path / f"{number}").write_bytes(b"header" + content)
        pieces.append(Piece(f"{number}", len(b"header"), box))
    return Stored(tmp_path, TensorEntry(TensorKind("F32", (7, 6)), tuple(pieces)))


def neighbours(ends):
    return list(pairwise(ends))


def test_every_part(stored):
    for (top, bottom), (left, right) in product(parts(7), parts(6)):
        found = torch.full((bottom - top, right - left), -1.0)
        stored.read_into(found, Box((top, left), (bottom - top, right - left)))
        assert torch.equal(found, WHOLE[top:bottom, left:right])
    assert torch.equal(stored.read(), WHOLE)


def parts(size):
    return [(begin, end) for begin in range(size) for end in range(begin + 1, size + 1)]
