"""Numbers that the authors of MNIST-1D published, and when measurements of ours reproduce one.

Source: README and notebooks of https://github.com/greydanus/mnist1d, of Greydanus and Kobak 2024
(https://arxiv.org/abs/2011.14439).
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.stats import t

from manyheads.runner.records.run_result import Result

CLOSE = 2.0  # points, within which a published value that has no interval of its own counts as reproduced

TABLE = {  # test accuracy in percent, of a network and its positions: in the paper's table, and printed by its notebook
    ("linear", "in order"): (32, 31.5),
    ("mlp", "in order"): (68, 65.1),
    ("cnn", "in order"): (94, 92.3),
    ("gru", "in order"): (91, 89.1),
    ("linear", "shuffled"): (32, 31.5),
    ("mlp", "shuffled"): (68, 66.0),
    ("cnn", "shuffled"): (56, 58.7),
    ("gru", "shuffled"): (57, 53.3),
}
DOUBLE_DESCENT = {  # by units per hidden layer: errors in percent on training and on test signals, with label noise
    2: (71.68, 69.59),
    3: (68.65, 67.50),
    4: (62.75, 62.55),
    5: (57.95, 57.45),
    7: (54.45, 54.80),
    9: (47.45, 48.97),
    12: (46.47, 50.28),
    16: (39.70, 47.24),
    21: (38.08, 50.84),
    27: (29.55, 50.69),
    36: (19.02, 52.80),
    47: (5.47, 54.05),
    61: (0.00, 54.02),
    80: (0.00, 52.08),
    104: (0.00, 50.23),
    135: (0.00, 48.39),
    177: (0.00, 47.88),
    230: (0.00, 46.54),
    300: (0.00, 45.47),
}


SELF_SUPERVISED = {"linear, of features": 82.1, "neighbours, of outputs": 74.1}  # accuracy after 200 epochs, in percent


class Measured(NamedTuple):
    """The mean of several runs' values, with half the width of its 95 % interval."""

    mean: float
    half: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measured":
        """By Student's t; the interval of a single run is infinite."""
        count = len(values)
        half = float(t.ppf(0.975, count - 1)) * stdev(values) / math.sqrt(count) if count > 1 else math.inf
        return cls(fmean(values), half, count)

    def verdict(self, published: float) -> str:
        """Whether a published value lies within the interval, or ``CLOSE`` to the mean."""
        near = max(CLOSE, self.half if self.runs > 1 else 0.0)
        return "reproduced" if abs(published - self.mean) <= near else "differs"


def results(folders: Iterable[Path]) -> list[Result]:
    """The results of all runs in these folders, which may be runs, or contain them."""
    configs = (file for folder in folders for file in folder.rglob("run.yaml"))
    return [Result.of(file.parent) for file in sorted(configs) if (file.parent / "result.json").exists()]
