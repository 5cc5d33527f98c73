"""A tiny language model, and texts with padding, for the tests."""

import torch
from torch import Tensor, nn

PADDING = -100


class Tiny(nn.Module):
    """The next token from this one and the mean of those before it; ``as_dict``: returns a dict, as many models do."""

    def __init__(self, *, num_classes: int, width: int = 8, as_dict: bool = False):
        super().__init__()
        self.embedding, self.head = nn.Embedding(num_classes, width), nn.Linear(width, num_classes)
        self.as_dict = as_dict

    def forward(self, tokens: Tensor) -> Tensor | dict[str, Tensor]:
        embedded = self.embedding(tokens)
        places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]
        logits = self.head(torch.tanh(embedded + embedded.cumsum(1) / places))
        return {"logits": logits} if self.as_dict else logits


class Padded:
    """(tokens, labels) of which each sample has another number that is no padding; every third one has none."""

    num_classes = 11

    def __init__(self, *, split: str, size: int = 43, length: int = 6):
        generator = torch.Generator().manual_seed(len(split))
        self.tokens = torch.randint(self.num_classes, (size, length + 1), generator=generator)
        kept = torch.randint(1, length + 1, (size,), generator=generator)
        kept[::3] = 0
        self.labels = self.tokens[:, 1:].clone()
        self.labels[torch.arange(length) >= kept[:, None]] = PADDING

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.tokens[index, :-1], self.labels[index]
