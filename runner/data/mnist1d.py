"""data=mnist1d: MNIST-1D, 5,000 signals of 40 points in 10 classes, generated from ten templates and a fixed seed.

Source: Greydanus and Kobak 2024, Scaling Down Deep Learning with MNIST-1D (https://arxiv.org/abs/2011.14439).
"""

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.samples import TableArrays
from manyheads.runner.option.rules import BOOLEAN

if TYPE_CHECKING:  # the parent, which only checks the keys, starts without it
    import numpy as np

SEED = 42
SAMPLES, TRAINING = 5000, 4000
POINTS = 40  # of a signal
LEAST_PADDING, MOST_PADDING = 36, 60  # zeros behind a template's points
SHIFTS = 48  # from 0 on, in points
SCALE, SHEAR = 0.4, 0.75  # widths of the ranges that factors and slopes are drawn from
SMOOTH_NOISE, WHITE_NOISE, SMOOTHNESS = 0.25, 0.02, 2  # standard deviations; the last one in points
NOT_PADDING = 1e-8  # tells a template's own zeros from those behind it
TEMPLATES = (
    (5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5),
    (5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5),
    (5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5),
    (5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5),
    (5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5),
    (5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5),
    (5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5),
    (5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5),
)


class Mnist1DOption(DataOption):
    """Samples that are generated, so there are no files to look for."""

    rules: ClassVar = {"shuffle_positions": BOOLEAN}
    most_workers = 0


class Mnist1D(Data):
    """The published signals: 4,000 for training, 1,000 for validation, which the paper calls its test set.

    ``shuffle_positions``: the same random order of the 40 points in every signal, which hides what is next to what.
    """

    num_classes = 10
    num_inputs = POINTS

    def __init__(self, *, shuffle_positions: bool = False):
        self.shuffle_positions = shuffle_positions

    @cached_property
    def _all(self) -> "tuple[np.ndarray, np.ndarray]":
        return signals(shuffle_positions=self.shuffle_positions)  # once for both splits

    def split(self, *, train: bool) -> TableArrays:
        features, labels = self._all
        chosen = slice(None, TRAINING) if train else slice(TRAINING, None)
        classes = [str(digit) for digit in range(self.num_classes)]
        return TableArrays(features[chosen].astype("float32"), labels[chosen], classes)


def signals(*, shuffle_positions: bool = False) -> "tuple[np.ndarray, np.ndarray]":
    """All signals (5000, 40) float64, with mean 0 and standard deviation 1 over all values, and labels (5000,)."""
    import numpy as np

    random = np.random.RandomState(SEED)  # whose draws are the same in every version of NumPy
    labels = np.repeat(np.arange(len(TEMPLATES)), SAMPLES // len(TEMPLATES))
    templates = centered()
    drawn = np.stack([signal(templates[label], random) for label in labels])
    order = random.permutation(SAMPLES)
    drawn, labels = drawn[order], labels[order]
    if shuffle_positions:
        drawn = drawn[:, random.permutation(POINTS)]
    return (drawn - drawn.mean()) / drawn.std(), labels


def centered() -> "np.ndarray":
    """The templates (10, 12), each with a standard deviation of 1/6, from 0 on."""
    import numpy as np

    shapes = np.array(TEMPLATES)
    shapes = (shapes - shapes.mean(1, keepdims=True)) / shapes.std(1, keepdims=True)
    return (shapes - shapes[:, :1]) / 6


def signal(template: "np.ndarray", random: "np.random.RandomState") -> "np.ndarray":
    """A template (12,), padded, stretched, scaled, shifted, with noise and a slope, sampled at 40 points, (40,)."""
    import numpy as np
    from scipy.ndimage import gaussian_filter

    padding = LEAST_PADDING + int(random.rand() * (MOST_PADDING - LEAST_PADDING + 1))
    curve = resampled(np.pad(template + NOT_PADDING, (0, padding)), len(template) + MOST_PADDING)
    curve *= 1 + SCALE * (random.rand() - 0.5)
    curve = np.roll(curve, random.choice(SHIFTS))
    smooth = gaussian_filter(SMOOTH_NOISE * random.randn(len(curve)), SMOOTHNESS)
    curve = np.where(curve == 0, smooth, curve) + WHITE_NOISE * random.randn(len(curve))
    slope = SHEAR * (random.rand() - 0.5)
    return resampled(curve - slope * np.linspace(-0.5, 0.5, len(curve)), POINTS)


def resampled(values: "np.ndarray", count: int) -> "np.ndarray":
    """``count`` values at equal distances, interpolated linearly."""
    import numpy as np

    return np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(values)), values)
