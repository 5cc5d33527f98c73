"""What a data set holds that loader processes share, or each have a copy of, so that samples depend on their number."""

import io
import random
from typing import Any

import numpy as np
import torch

from manyheads.runner.data.rank.dataset_wrapper import DatasetWrapper
from manyheads.runner.errors import warn

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)


def warn_of_inherited(dataset: Any, *, num_workers: int) -> None:
    """Warn of open files and generators among the attributes of a data set that loader processes inherit."""
    while isinstance(dataset, DatasetWrapper):
        dataset = dataset.dataset
    for name, value in getattr(dataset, "__dict__", {}).items() if num_workers else ():
        place = f"{type(dataset).__name__}.{name}"
        if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
            warn(
                f"{place} is a file that is already open: loader processes share its position, and may read each "
                "other's bytes. Open it in __getitem__, once per process, or set data.num_workers=0."
            )
        elif isinstance(value, GENERATORS):
            warn(
                f"{place} is a random generator of its own: each loader process draws the same numbers from its copy. "
                "Draw from random, numpy.random or torch instead, which are seeded for each sample, or set "
                "data.num_workers=0."
            )
