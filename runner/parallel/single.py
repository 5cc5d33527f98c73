"""What parallel=single declares."""

from manyheads.runner.parallel.parallel_option import ParallelOption


class SingleOption(ParallelOption):
    """One rank on one device, with which all others are compared."""

    one_process = True
    is_baseline = True
    color = "#56646e"
