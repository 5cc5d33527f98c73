"""model=gpt: a decoder-only transformer that every parallel strategy can split.

Sources: pre-norm blocks, Radford et al. 2019 (GPT-2); rotary positions, Su et al. 2021
(https://arxiv.org/abs/2104.09864); one embedding for input and output, Press and Wolf 2017
(https://arxiv.org/abs/1608.05859).
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from manyheads.runner.model.gpt import SIZES

ROTARY_BASE = 10_000.0
INITIAL_STD = 0.02


class GPT(nn.Module):
    """A decoder-only transformer, which predicts the next token at each position.

    Takes tokens (N, T) int64; returns logits (N, T, num_classes). ``size``: a name for depth, width and heads, each of
    which overrides it.
    """

    # How it may be split: docs/tensor-pipeline.md. The first name is that of Hugging Face models.
    _no_split_modules: ClassVar = ["Block"]
    tensor_parallel_plan: ClassVar = {
        "blocks.*.attention.query": "colwise",
        "blocks.*.attention.key": "colwise",
        "blocks.*.attention.value": "colwise",
        "blocks.*.attention.output": "rowwise",
        "blocks.*.feed_forward.up": "colwise",
        "blocks.*.feed_forward.down": "rowwise",
        "blocks.*": "scattered",
        "norm": "scattered",
    }

    def __init__(
        self,
        *,
        num_classes: int,
        size: str = "nano",
        depth: int | None = None,
        width: int | None = None,
        heads: int | None = None,
    ):
        super().__init__()
        usual = SIZES[size]
        depth, width, heads = depth or usual.depth, width or usual.width, heads or usual.heads
        self.embedding = nn.Embedding(num_classes, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # Additions to the residual stream are scaled down by their number.
                ends_branch = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(parameter, std=INITIAL_STD / (2 * depth) ** 0.5 if ends_branch else INITIAL_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.embedding.weight)


class Block(nn.Module):
    """Attention, then a feed-forward layer; each adds to the residual stream (N, T, width)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.feed_forward_norm, self.feed_forward = nn.LayerNorm(width), FeedForward(width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class Attention(nn.Module):
    """Causal attention (N, T, width). Its projections determine the number of heads; a rank may hold a part of them."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.rotation = Rotation(self.head_width)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (
            project(hidden).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(self.rotation(query), self.rotation(key), value, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear layers with GELU, per token (N, T, width); four times as wide in between."""

    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(hidden)))


class Rotation:
    """Rotary position embedding: rotates each pair of a head's values by an angle that grows with the position.

    ``width``: of a head. The angles are cached for the longest sequence so far, outside of buffers, because they need
    not be sent or saved.
    """

    def __init__(self, width: int):
        self.width = width
        self._turn = (torch.empty(0), torch.empty(0))  # cosines and sines: (T, width / 2)

    def __call__(self, heads: Tensor) -> Tensor:
        """Rotate ``heads``, (N, heads, T, width)."""
        cosine, sine = self._turns(heads)
        left, right = heads.chunk(2, dim=-1)
        return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)

    def _turns(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        length, (cosine, sine) = heads.shape[-2], self._turn
        if len(cosine) < length or cosine.device != heads.device or cosine.dtype != heads.dtype:
            speeds = ROTARY_BASE ** (
                -torch.arange(0, self.width, 2, dtype=torch.float64, device=heads.device) / self.width
            )
            angles = torch.outer(torch.arange(length, dtype=torch.float64, device=heads.device), speeds)
            cosine, sine = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
            if not heads.is_meta and not torch.compiler.is_compiling():  # which allows no side effects if it recomputes
                self._turn = cosine, sine
        return cosine[:length], sine[:length]
