"""Declarations of parallel=single."""

from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.parallel_option import ParallelOption


class SingleOption(ParallelOption):
    """One rank on one device, with which all others are compared."""

    one_process = True
    is_baseline = True
    own_steps = several_optimizers = True
    color = "#56646e"

    def exchanges(self, *, devices: int) -> Exchanges:
        if devices != 1:
            raise self.unpredictable("it has one device. Set parallel=ddp, for example")
        return Exchanges()
