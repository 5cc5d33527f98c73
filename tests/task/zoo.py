"""A tiny data set and model for each task, in which no two samples count alike where that is possible."""

import torch
from torch import Tensor, nn

SIZE = 29


class Tables:
    """(features (5,), a number)."""

    def __init__(self, *, split: str, size: int = SIZE):
        draw = torch.Generator().manual_seed(len(split))
        self.features = torch.randn(size, 5, generator=draw, dtype=torch.float64)
        self.values = self.features @ torch.arange(5.0).double() + torch.randn(size, generator=draw).double()

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int):
        return self.features[index], self.values[index]


class Classes(Tables):
    num_classes = 7

    def __init__(self, **options):
        super().__init__(**options)
        self.targets = torch.randint(7, (len(self),), generator=torch.Generator().manual_seed(3))

    def __getitem__(self, index: int):
        return self.features[index], self.targets[index]


class Labels(Tables):
    num_classes = 4

    def __getitem__(self, index: int):
        return self.features[index], (self.features[index, :4] > 0.3).long()


class Linear(nn.Module):
    def __init__(self, *, num_classes: int = 1):
        super().__init__()
        self.layer = nn.Linear(5, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features)


class Masks:
    """(image (3, 6, 6), mask (6, 6)); each third mask is ignored as a whole, others in part."""

    num_classes = 3

    def __init__(self, *, split: str, size: int = SIZE):
        draw = torch.Generator().manual_seed(len(split))
        self.images = torch.randn(size, 3, 6, 6, generator=draw)
        self.masks = torch.randint(3, (size, 6, 6), generator=draw)
        self.masks[::3] = 255
        self.masks[1::3, :2] = 255

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        return self.images[index], self.masks[index]


class Segmenter(nn.Module):
    """With an auxiliary head, at half the size, as torchvision's return their outputs."""

    def __init__(self, *, num_classes: int):
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3, padding=1)
        self.head, self.aux = nn.Conv2d(4, num_classes, 1), nn.Conv2d(4, num_classes, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features = torch.tanh(self.body(images))
        return {"out": self.head(features), "aux": self.aux(nn.functional.avg_pool2d(features, 2))}


class Causal:
    """Dicts as transformers' models take them, with padding: of each third sample nothing counts."""

    def __init__(self, *, split: str, size: int = SIZE, length: int = 6):
        draw = torch.Generator().manual_seed(len(split))
        self.tokens = torch.randint(17, (size, length), generator=draw)
        self.kept = torch.randint(2, length + 1, (size,), generator=draw)
        self.kept[::3] = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": tokens.where(torch.arange(len(tokens)) < self.kept[index], -100)}


class OwnLoss(nn.Module):
    """Computes its own loss, a mean over the next tokens that count, as transformers' causal models do, in fp64."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(17, 4), nn.Linear(4, 17)

    def forward(self, *, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(torch.tanh(self.embedding(input_ids)))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}
