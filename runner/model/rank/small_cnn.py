"""model=small_cnn: a small convolutional network without normalization layers, the same on any number of ranks."""

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d, interpolate

is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # torch 2.6 has only the second


class SmallCNN(nn.Module):
    """Three stages of convolution, ReLU and pooling; ``width`` channels, doubled at each stage.

    Takes (N, 3, H, W) with H, W of at least 8; returns logits (N, num_classes).
    """

    def __init__(self, *, num_classes: int, width: int):
        super().__init__()
        channels = [3, width, 2 * width, 4 * width]
        stages = [
            layer
            for before, after in itertools.pairwise(channels)
            for layer in (nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        ]
        self.features = nn.Sequential(*stages, QuarterMeans(), nn.Flatten())
        self.classifier = nn.Linear(4 * channels[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images))


class QuarterMeans(nn.Module):
    """AdaptiveAvgPool2d(2) by operations that are deterministic on GPUs too; bit-identical to it in fp32 and fp64.

    Takes (N, C, H, W); returns (N, C, 2, 2). The quarters overlap if H or W is odd.
    """

    def forward(self, images: Tensor) -> Tensor:
        if is_exporting():  # ONNX has no window sums, and its exporter drops the divisor
            return adaptive_avg_pool2d(images, 2)
        if min(images.shape[-2:]) < 2:
            images = interpolate(images, size=[max(2, side) for side in images.shape[-2:]])
        height, width = images.shape[-2:]
        quarter, step = ((height + 1) // 2, (width + 1) // 2), (height // 2, width // 2)
        sums = avg_pool2d(images, quarter, step, divisor_override=1)
        return sums / quarter[0] / quarter[1]
