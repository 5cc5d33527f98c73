"""Models and texts for strategies that take models apart, named as a user's own by ``_target_``."""

import torch
from torch import Tensor, nn
from torchvision.models import VisionTransformer


class ViT(VisionTransformer):
    """torchvision's own, of three layers for images of 16 pixels."""

    def __init__(self, *, num_classes: int):
        super().__init__(
            image_size=16, patch_size=8, num_layers=3, num_heads=6, hidden_dim=24, mlp_dim=48, num_classes=num_classes
        )


class Encoder(nn.Module):
    """torch's own layers, with dropout of what goes into the residual stream.

    Not after attention, whose output lies in memory in another order when it is split: so would the random numbers.
    """

    def __init__(self, *, num_classes: int, width: int = 12):
        super().__init__()
        self.embedding = nn.Embedding(num_classes, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True, norm_first=True)
        layer.dropout.p = layer.dropout1.p = layer.self_attn.dropout = 0.0
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.encoder(self.embedding(tokens), mask.to(self.head.weight), is_causal=True))


class Text:
    """Random tokens, and their labels, which are the next ones; of a few samples some labels do not count."""

    num_classes = 13

    def __init__(self, *, split: str, length: int = 6, size: int = 480):
        generator = torch.Generator().manual_seed(len(split))
        samples = size if split == "train" else 31
        self.tokens = torch.randint(self.num_classes, (samples, length + 1), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        labels = self.tokens[index, 1:].clone()
        labels[: index % 4] = -100
        return self.tokens[index, :-1], labels
