"""Layers for sequence parallelism: between them, each rank of a tensor-parallel group holds one piece of each sequence.

Source: Korthikanti et al. 2022 (https://arxiv.org/abs/2205.05198). Sequences have the shape (samples, length, width),
pieces (samples, length / ranks, width). Column-parallel layers gather the pieces, once for all that take the same ones;
a row-parallel one reduce-scatters its output into pieces.
"""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from manyheads.runner.parallel.rank.model_parallel.tensor_layers import Entrance, SplitAttention, exchange, lowered


def gathered(piece: Tensor, group: Any) -> Tensor:
    """All-gather: the sequences (samples, length, width) from the pieces of all ranks."""
    size = dist.get_world_size(group)
    pieces = piece.new_empty((size * piece.shape[0], *piece.shape[1:]))
    if not piece.is_meta:  # on meta, only the shape matters
        dist.all_gather_into_tensor(pieces, piece.contiguous(), group=group)
    return pieces.unflatten(0, (size, -1)).movedim(0, 1).flatten(1, 2)


def own_piece(tensor: Tensor, group: Any) -> Tensor:
    """This rank's piece of complete sequences."""
    return tensor.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)].contiguous()


def summed_piece(part: Tensor, group: Any) -> Tensor:
    """Reduce-scatter: this rank's piece of the sum over all ranks."""
    pieces = part.unflatten(1, (dist.get_world_size(group), -1)).movedim(1, 0).contiguous()
    piece = torch.empty_like(pieces[0])
    if not part.is_meta:
        dist.reduce_scatter_tensor(piece, pieces.flatten(0, 1), group=group)
    return piece


# Splits sequences that every rank has into pieces.
EnterPieces = exchange("EnterPieces", own_piece, gathered)
# Gathers pieces into sequences; the layers after it are replicated on all ranks.
LeavePieces = exchange("LeavePieces", gathered, own_piece)
# Gathers pieces into sequences for layers that each compute a part; the sum of their gradients is reduce-scattered.
GatherPieces = exchange("GatherPieces", gathered, summed_piece)
# Reduce-scatters partial sums into pieces.
SumToPieces = exchange("SumToPieces", summed_piece, gathered)


class GatheredLinear(torch.autograd.Function):
    """A linear layer on the gathered pieces; it saves only its own piece, and gathers again in the backward pass."""

    @staticmethod
    def forward(context: Any, piece: Tensor, weight: Tensor, bias: Tensor | None, group: Any) -> Tensor:
        context.save_for_backward(piece, weight)
        context.group, context.has_bias = group, bias is not None
        return functional.linear(gathered(piece, group), weight, bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        piece, weight = context.saved_tensors
        dtype, rows = gradient.dtype, gradient.flatten(0, -2)  # half precision under autocast
        to_piece = to_weight = to_bias = None
        if context.needs_input_grad[0]:
            to_piece = summed_piece(gradient @ weight.to(dtype), context.group)
        if context.needs_input_grad[1]:
            to_weight = rows.T @ gathered(piece.to(dtype), context.group).flatten(0, -2)
        if context.has_bias and context.needs_input_grad[2]:
            to_bias = rows.sum(0)
        return to_piece, to_weight, to_bias, None


class Again:
    """Gathers a piece once more, in the backward pass, for the ``users`` layers that need it; then lets it go."""

    def __init__(self, group: Any):
        self.users, self._left, self._group = 0, 0, group
        self._whole: Tensor | None = None

    def gathered(self, piece: Tensor) -> Tensor:
        if self._whole is None or self._whole.dtype is not piece.dtype:
            self._whole, self._left = gathered(piece, self._group), self.users
        sequence, self._left = self._whole, self._left - 1
        if self._left <= 0:
            self._whole = None
        return sequence


class LinearOfPieces(torch.autograd.Function):
    """A linear layer on sequences that were gathered for several layers; it saves only their ``piece``."""

    @staticmethod
    def forward(
        context: Any, sequence: Tensor, weight: Tensor, bias: Tensor | None, piece: Tensor, again: Again
    ) -> Tensor:
        context.save_for_backward(piece, weight)
        context.again, context.has_bias = again, bias is not None
        again.users += weight.requires_grad
        return functional.linear(sequence, weight, bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        piece, weight = context.saved_tensors
        dtype, rows = gradient.dtype, gradient.flatten(0, -2)  # half precision under autocast
        to_whole = gradient @ weight.to(dtype) if context.needs_input_grad[0] else None
        to_weight = to_bias = None
        if context.needs_input_grad[1]:
            to_weight = rows.T @ context.again.gathered(piece.to(dtype)).flatten(0, -2)
        if context.has_bias and context.needs_input_grad[2]:
            to_bias = rows.sum(0)
        return to_whole, to_weight, to_bias, None, None


class Pieces:
    """Sequences that are gathered once for all layers that take the same ``piece``."""

    def __init__(self, piece: Tensor, group: Any):
        self._piece, self._whole, self._again = piece.detach(), GatherPieces.apply(piece, group), Again(group)

    def linear(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """This rank's output features of a layer with this part of the weight."""
        return LinearOfPieces.apply(self._whole, weight, bias, self._piece, self._again)


class PieceColumnLinear(nn.Linear):
    """A ColumnLinear from pieces (samples, length / ranks, width) to complete sequences."""

    group: Any
    entrance: Entrance

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # each layer by itself: see Entrance
            return GatheredLinear.apply(lowered(inputs), self.weight, self.bias, self.group)
        return self.entrance.once(inputs, partial(Pieces, group=self.group)).linear(self.weight, self.bias)


class PieceRowLinear(nn.Linear):
    """A RowLinear from complete sequences to pieces (samples, length / ranks, width)."""

    group: Any

    def forward(self, inputs: Tensor) -> Tensor:
        piece = SumToPieces.apply(functional.linear(inputs, self.weight), self.group)
        return piece if self.bias is None else piece + self.bias


class PieceAttention(SplitAttention):
    """A SplitAttention whose inputs and output are pieces (samples, length / ranks, width)."""

    def enter(self, given: Tensor) -> Any:
        return lowered(given) if torch.compiler.is_compiling() else Pieces(lowered(given), self.group)

    def project(self, given: Any, weight: Tensor, bias: Tensor | None) -> Tensor:
        if isinstance(given, Pieces):
            return given.linear(weight, bias)
        return GatheredLinear.apply(given, weight, bias, self.group)

    def leave(self, part: Tensor) -> Tensor:
        return SumToPieces.apply(part, self.group)


class PieceDropout(nn.Dropout):
    """Dropout of a piece, drawn for complete sequences, so that all ranks together drop what one process would."""

    group: Any

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        samples, length, *others = inputs.shape
        ones = inputs.new_ones(samples, length * dist.get_world_size(self.group), *others)
        return inputs * own_piece(functional.dropout(ones, self.p), self.group)
