"""model=small_cnn: a small convolutional net without normalisation layers, the same on any number of ranks."""

import itertools

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Three stages of convolution, ReLU and pooling; ``width`` channels, doubled at each stage.

    Takes (N, 3, H, W) with H, W from 8 on; returns logits (N, num_classes).
    """

    def __init__(self, *, num_classes: int, width: int):
        super().__init__()
        channels = [3, width, 2 * width, 4 * width]
        stages = [
            layer
            for before, after in itertools.pairwise(channels)
            for layer in (nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        ]
        self.features = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.classifier = nn.Linear(4 * channels[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images))
