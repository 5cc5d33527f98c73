"""Declarations of precision=fp32."""

from manyheads.runner.precision.precision_option import PrecisionOption


class FP32Option(PrecisionOption):
    """Single precision. It rounds to 1e-7; another order of summation makes that 1e-6, and training increases it."""

    tolerance = 1e-3
