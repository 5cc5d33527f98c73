"""Models and texts for strategies that take models apart, named as a user's own by ``_target_``."""

import torch
from torch import Tensor
from torchvision.models import VisionTransformer


class ViT(VisionTransformer):
    """torchvision's own, of three layers for images of 16 pixels."""

    def __init__(self, *, num_classes: int):
        super().__init__(
            image_size=16, patch_size=8, num_layers=3, num_heads=6, hidden_dim=24, mlp_dim=48, num_classes=num_classes
        )


class Text:
    """Random tokens, and their labels, which are the next ones; of a few samples some labels do not count."""

    num_classes = 13

    def __init__(self, *, split: str, length: int = 6):
        generator = torch.Generator().manual_seed(len(split))
        self.tokens = torch.randint(
            self.num_classes, (480 if split == "train" else 31, length + 1), generator=generator
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        labels = self.tokens[index, 1:].clone()
        labels[: index % 4] = -100
        return self.tokens[index, :-1], labels
