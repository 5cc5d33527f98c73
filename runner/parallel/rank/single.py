"""parallel=single: one process on one device, the baseline of every comparison."""

from manyheads.runner.parallel.rank.parallel import Parallel


class Single(Parallel):
    """The base class, unchanged."""
