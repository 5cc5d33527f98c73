"""Declarations of precision=fp64."""

from manyheads.runner.precision.precision_option import PrecisionOption


class FP64Option(PrecisionOption):
    """Double precision, with a tolerance of seven digits more than should be needed."""

    tolerance = 1e-9
    weights_dtype = "float64"
