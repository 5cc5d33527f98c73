"""Split layers between which each rank of a tensor group keeps its own piece of every sequence alone.

Source: Korthikanti et al. 2022 (https://arxiv.org/abs/2205.05198). Tensors are (samples, length, width), and pieces
(samples, length / ranks, width). A layer that is split by columns gathers the pieces; one that is split by rows adds up
over the ranks and leaves each its piece.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from manyheads.runner.parallel.model_parallel.rank.tensor_layers import SplitAttention


def gathered(piece: Tensor, group: Any) -> Tensor:
    """The whole sequences from the pieces of all ranks."""
    size = dist.get_world_size(group)
    pieces = piece.new_empty((size * piece.shape[0], *piece.shape[1:]))
    if not piece.is_meta:  # else only its shape is of interest
        dist.all_gather_into_tensor(pieces, piece.contiguous(), group=group)
    return pieces.unflatten(0, (size, -1)).movedim(0, 1).flatten(1, 2)


def own_piece(whole: Tensor, group: Any) -> Tensor:
    """This rank's piece of whole sequences."""
    return whole.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)].contiguous()


def summed_piece(part: Tensor, group: Any) -> Tensor:
    """This rank's piece of the sum over all ranks."""
    pieces = part.unflatten(1, (dist.get_world_size(group), -1)).movedim(1, 0).contiguous()
    own = torch.empty_like(pieces[0])
    if not part.is_meta:
        dist.reduce_scatter_tensor(own, pieces.flatten(0, 1), group=group)
    return own


class EnterPieces(torch.autograd.Function):
    """From what every rank has to its piece; going back, every rank gets the gradient of all of it."""

    @staticmethod
    def forward(context: Any, whole: Tensor, group: Any) -> Tensor:
        context.group = group
        return own_piece(whole, group)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gathered(gradient, context.group), None


class LeavePieces(torch.autograd.Function):
    """The inverse of EnterPieces: what follows is computed on each rank alike."""

    @staticmethod
    def forward(context: Any, piece: Tensor, group: Any) -> Tensor:
        context.group = group
        return gathered(piece, group)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return own_piece(gradient, context.group), None


class SumToPieces(torch.autograd.Function):
    """The sum over the ranks going forward, of which each goes on with its piece."""

    @staticmethod
    def forward(context: Any, part: Tensor, group: Any) -> Tensor:
        context.group = group
        return summed_piece(part, group)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gathered(gradient, context.group), None


class GatheredLinear(torch.autograd.Function):
    """A linear layer of the gathered pieces, of which it keeps its own only, and gathers them again going back."""

    @staticmethod
    def forward(context: Any, piece: Tensor, weight: Tensor, bias: Tensor | None, group: Any) -> Tensor:
        context.save_for_backward(piece, weight)
        context.group, context.has_bias = group, bias is not None
        return functional.linear(gathered(piece, group), weight, bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        piece, weight = context.saved_tensors
        dtype, rows = gradient.dtype, gradient.flatten(0, -2)  # which autocast may have made half as wide
        to_piece = to_weight = to_bias = None
        if context.needs_input_grad[0]:
            to_piece = summed_piece(gradient @ weight.to(dtype), context.group)
        if context.needs_input_grad[1]:
            to_weight = rows.T @ gathered(piece.to(dtype), context.group).flatten(0, -2)
        if context.has_bias and context.needs_input_grad[2]:
            to_bias = rows.sum(0)
        return to_piece, to_weight, to_bias, None


class PieceColumnLinear(nn.Linear):
    """A ColumnLinear whose input is a piece, and whose output is of whole sequences."""

    group: Any

    def forward(self, inputs: Tensor) -> Tensor:
        return GatheredLinear.apply(inputs, self.weight, self.bias, self.group)


class PieceRowLinear(nn.Linear):
    """A RowLinear whose input is of whole sequences, and whose output is a piece."""

    group: Any

    def forward(self, inputs: Tensor) -> Tensor:
        piece = SumToPieces.apply(functional.linear(inputs, self.weight), self.group)
        return piece if self.bias is None else piece + self.bias


class PieceAttention(SplitAttention):
    """The same from pieces to a piece."""

    def enter(self, given: Tensor) -> Tensor:
        return given

    def project(self, given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return GatheredLinear.apply(given, weight, bias, self.group)

    def leave(self, part: Tensor) -> Tensor:
        return SumToPieces.apply(part, self.group)


class PieceDropout(nn.Dropout):
    """Dropout of a piece, drawn for the whole sequences, so that all ranks together leave out what one process does."""

    group: Any

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        samples, length, *others = inputs.shape
        whole = inputs.new_ones(samples, length * dist.get_world_size(self.group), *others)
        return inputs * own_piece(functional.dropout(whole, self.p), self.group)
