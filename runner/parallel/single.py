"""parallel=single: one process on one device, the baseline of every comparison."""

from runner.parallel.base import Parallel


class Single(Parallel):
    """The base class is the plain case."""
