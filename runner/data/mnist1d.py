"""data=mnist1d: MNIST-1D, signals of 40 points in 10 classes, generated from ten templates and a fixed seed.

Source: Greydanus and Kobak 2024, Scaling Down Deep Learning with MNIST-1D (https://arxiv.org/abs/2011.14439).
"""

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.samples import TableArrays
from manyheads.runner.option.rules import BOOLEAN, KeyKind, Rule, is_whole, number

if TYPE_CHECKING:  # the parent, which only checks the keys, starts without it
    import numpy as np

SEED = 42
TRAINING = 4000  # signals; those of the test follow them
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
FOR_EACH_CLASS = Rule(
    "a multiple of 10, at least 10",
    lambda value: is_whole(value) and value >= len(TEMPLATES) and value % len(TEMPLATES) == 0,
    {"type": "integer", "minimum": len(TEMPLATES), "multipleOf": len(TEMPLATES)},
    KeyKind.NUMBER,
)


class Mnist1DOption(DataOption):
    """Samples that are generated, so there are no files to look for."""

    rules: ClassVar = {
        "shuffle_positions": BOOLEAN,
        "test_samples": FOR_EACH_CLASS,
        "label_noise": number(at_least=0, below=1),
    }
    most_workers = 0


class Mnist1D(Data):
    """The published signals: 4,000 for training, and for validation those that the paper calls its test set.

    ``shuffle_positions``: the same random order of the 40 points in every signal, which hides what is next to what;
    ``test_samples``: other numbers than 1,000 change all signals, as in the published generator; ``label_noise``: the
    probability that a training label is replaced by one of the ten classes, drawn at random.
    """

    num_classes = 10
    num_inputs = POINTS

    def __init__(self, *, shuffle_positions: bool = False, test_samples: int = 1000, label_noise: float = 0.0):
        self.shuffle_positions, self.test_samples, self.label_noise = shuffle_positions, test_samples, label_noise

    @cached_property
    def _all(self) -> "tuple[np.ndarray, np.ndarray]":
        return signals(TRAINING + self.test_samples, shuffle_positions=self.shuffle_positions)  # for both splits

    def split(self, *, train: bool) -> TableArrays:
        features, labels = self._all
        classes = [str(digit) for digit in range(self.num_classes)]
        features = features.astype("float32")
        if train:
            return TableArrays(features[:TRAINING], noisy(labels[:TRAINING], self.label_noise), classes)
        return TableArrays(features[TRAINING:], labels[TRAINING:], classes)


def signals(count: int, *, shuffle_positions: bool = False) -> "tuple[np.ndarray, np.ndarray]":
    """All signals (count, 40) float64, with mean 0 and standard deviation 1 over all values, and labels (count,)."""
    import numpy as np

    random = np.random.RandomState(SEED)  # whose draws are the same in every version of NumPy
    labels = np.repeat(np.arange(len(TEMPLATES)), count // len(TEMPLATES))
    templates = centered()
    drawn = np.stack([signal(templates[label], random) for label in labels])
    order = random.permutation(count)
    drawn, labels = drawn[order], labels[order]
    if shuffle_positions:
        drawn = drawn[:, random.permutation(POINTS)]
    return (drawn - drawn.mean()) / drawn.std(), labels


def noisy(labels: "np.ndarray", fraction: float) -> "np.ndarray":
    """The labels, each replaced with this probability by a class drawn at random, which may be the same; (N,)."""
    import numpy as np

    random = np.random.RandomState([SEED, 1])  # other numbers than those that the signals are made from
    replaced = random.random_sample(len(labels)) < fraction
    return np.where(replaced, random.randint(0, len(TEMPLATES), len(labels)), labels)


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
