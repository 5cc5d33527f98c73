"""Tensor-parallel layers, whose weights are plain tensors: each rank's part.

Source: Shoeybi et al. 2019 (https://arxiv.org/abs/1909.08053). A column-parallel layer computes some of the output
features on each rank; the row-parallel layer after it takes these as its input features, and sums over the ranks.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

Exchanged = Callable[[Tensor, Any], Tensor]  # of a tensor over a group


def exchange(name: str, there: Exchanged, back: Exchanged) -> type[torch.autograd.Function]:
    """A function of (tensor, group): ``there`` in the forward pass, ``back`` for the gradient in the backward pass."""

    def forward(context: Any, given: Tensor, group: Any) -> Tensor:
        context.group = group
        return there(given, group)

    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return back(gradient, context.group), None

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (torch.autograd.Function,), methods)


def _sum(tensor: Tensor, group: Any) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    if not total.is_meta:  # on meta, only the shape matters
        dist.all_reduce(total, group=group)
    return total


def _same(tensor: Tensor, group: Any) -> Tensor:
    return tensor.view_as(tensor)


# The identity; its gradients come from each rank's own outputs, and are summed.
EnterGroup = exchange("EnterGroup", _same, _sum)
# The sum over the ranks, which all of them receive.
LeaveGroup = exchange("LeaveGroup", _sum, _same)


def lowered(tensor: Tensor) -> Tensor:
    """The tensor in the dtype in which a layer computes, and its gradient is summed: autocast's, where that is on."""
    device = tensor.device.type
    casts = tensor.is_floating_point() and tensor.dtype is not torch.float64  # which autocast leaves alone
    return tensor.to(torch.get_autocast_dtype(device)) if casts and torch.is_autocast_enabled(device) else tensor


class Entrance:
    """The entrance of a module's column-parallel layers. What has entered is known until the module's call ends.

    A tensor enters once for all layers that take it, as query, key and value do: each rank adds up what they contribute
    to its gradient, before the ranks do. Under torch.compile each layer enters by itself: a graph that is recomputed
    allows no side effects.
    """

    def __init__(self, parent: nn.Module, group: Any):
        self._group = group
        self._entered: list[tuple[Tensor, tuple[Any, ...], Any]] | None = None
        parent.register_forward_pre_hook(self._open)
        parent.register_forward_hook(self._close, always_call=True)

    def __call__(self, given: Tensor) -> Tensor:
        """The tensor as this rank's part of a layer receives it, in the dtype in which the layer computes."""
        return self.once(given, lambda cast: EnterGroup.apply(cast, self._group))

    def once(self, given: Tensor, enter: Callable[[Tensor], Any]) -> Any:
        """What ``enter`` returns for the tensor in the dtype in which layers compute; called once for all of them."""
        cast = lowered(given)
        if torch.compiler.is_compiling() or self._entered is None:
            return enter(cast)
        state = given._version, cast.dtype, torch.is_grad_enabled()
        for earlier, then, entered in self._entered:
            if earlier is given and then == state:
                return entered
        entered = enter(cast)
        self._entered.append((given, state, entered))
        return entered

    def _open(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._entered = []

    def _close(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._entered = None


class ColumnLinear(nn.Linear):
    """A column-parallel nn.Linear: this rank's rows of the weight, for its columns of the output.

    ``entrance``: brings the input into the group, once for all layers that share one.
    """

    group: Any
    entrance: Entrance

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(self.entrance(inputs), self.weight, self.bias)


class RowLinear(nn.Linear):
    """A row-parallel nn.Linear: this rank's columns of the weight, for its columns of the input."""

    group: Any

    def forward(self, inputs: Tensor) -> Tensor:
        output = LeaveGroup.apply(functional.linear(inputs, self.weight), self.group)
        return output if self.bias is None else output + self.bias


class ColumnConv2d(nn.Conv2d):
    """A column-parallel nn.Conv2d: this rank's output channels. ``entrance``: as for ColumnLinear."""

    group: Any
    entrance: Entrance

    def forward(self, images: Tensor) -> Tensor:
        return self._conv_forward(self.entrance(images), self.weight, self.bias)


class RowConv2d(nn.Conv2d):
    """A row-parallel nn.Conv2d: this rank's input channels."""

    group: Any

    def forward(self, images: Tensor) -> Tensor:
        output = LeaveGroup.apply(self._conv_forward(images, self.weight, None), self.group)
        return output if self.bias is None else output + self.bias[:, None, None]


class SplitAttention(nn.MultiheadAttention):
    """A tensor-parallel nn.MultiheadAttention: this rank's heads, with the same parameter names."""

    group: Any

    def enter(self, given: Tensor) -> Tensor:
        """A query, key or value as the heads of this rank receive it; its gradient is added up over the group."""
        return EnterGroup.apply(lowered(given), self.group)

    def project(self, given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The projection of ``given`` to the heads of this rank."""
        return functional.linear(given, weight, bias)

    def leave(self, part: Tensor) -> Tensor:
        """The output of all heads. ``part``: what the heads of this rank contribute to it."""
        return LeaveGroup.apply(part, self.group)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        inputs = query, key, value
        is_turned = not self.batch_first and query.ndim == 3
        entered = {  # a tensor that is used several times, as in self-attention, enters once
            number: self.enter(given.transpose(0, 1) if is_turned else given)
            for number, given in {id(given): given for given in inputs}.items()
        }
        weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        heads = [
            self.project(entered[id(given)], weight, bias).unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)
            for given, weight, bias in zip(inputs, weights, biases, strict=True)
        ]
        mask = attn_mask
        if key_padding_mask is not None:
            padding = key_padding_mask[:, None, None, :]
            if padding.dtype is torch.bool:
                padding = torch.zeros_like(padding, dtype=heads[0].dtype).masked_fill(padding, float("-inf"))
            if mask is not None and mask.dtype is torch.bool:
                mask = torch.zeros_like(mask, dtype=heads[0].dtype).masked_fill(mask, float("-inf"))
            mask = padding if mask is None else padding + mask
        elif mask is not None and mask.dtype is torch.bool:
            mask = ~mask  # True means attend here, ignore there
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], attn_mask=mask, dropout_p=dropout)
        part = functional.linear(mixed.transpose(-3, -2).flatten(-2), self.out_proj.weight)
        output = self.leave(part)
        if self.out_proj.bias is not None:
            output = output + self.out_proj.bias
        return (output if self.batch_first or output.ndim == 2 else output.transpose(0, 1)), None
