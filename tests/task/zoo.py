"""A tiny data set and model for each task, in which no two samples count alike where that is possible."""

from dataclasses import dataclass

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


class Unlabelled(Classes):
    """A fifth of the samples have no class."""

    def __init__(self, **options):
        super().__init__(**options)
        self.targets[::5] = -100


class Labels(Tables):
    num_classes = 4

    def __getitem__(self, index: int):
        return self.features[index], (self.features[index, :4] > 0.3).long()


class Unknown(Labels):
    """Some labels are unknown, and all of some samples."""

    def __getitem__(self, index: int):
        features, labels = super().__getitem__(index)
        return features, labels.masked_fill((features[:4] < -0.5) | (torch.tensor(index % 6 == 0)), -1)


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


@dataclass
class PlainConfig:
    """As nanoGPT's model is configured."""

    vocab_size: int = 5
    block_size: int = 6


class PlainGPT(nn.Module):
    """With the habits of nanoGPT's model: a config object, tied weights, ``view`` of the labels, a tuple, and -1."""

    def __init__(self, config: PlainConfig, reduction: str = "mean"):
        super().__init__()
        self.config, self.reduction = config, reduction
        self.embedding = nn.Embedding(config.vocab_size, 4)
        self.places = nn.Embedding(config.block_size, 4)
        self.head = nn.Linear(4, config.vocab_size, bias=False)
        self.embedding.weight = self.head.weight

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(torch.tanh(self.embedding(tokens) + places))
        if targets is None:
            return logits[:, [-1]], None
        flat = logits.view(-1, logits.size(-1)), targets.view(-1)
        return logits, nn.functional.cross_entropy(*flat, ignore_index=-1, reduction=self.reduction)


class Shifted(Causal):
    """(tokens, targets), where targets of -1 do not count."""

    def __getitem__(self, index: int):
        item = super().__getitem__(index)
        return item["input_ids"], item["labels"].where(item["labels"] >= 0, -1)


class OwnStep(Linear):
    """Returns a dict with its loss over samples and another number, as a training step would."""

    def forward(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        differences = super().forward(inputs) - targets.reshape(len(inputs), -1)
        return {"loss": differences.square().mean(), "error": differences.abs().mean()}


class Denoiser(nn.Module):
    """A diffusion model that computes its loss from images alone."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        noise = torch.randn_like(images)
        return (self.convolution(images + noise) - noise).square().mean()
