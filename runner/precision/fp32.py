"""Declarations of precision=fp32."""

from manyheads.runner.precision.precision_option import PrecisionOption


class FP32Option(PrecisionOption):
    """Rounding is 1e-7; sums in another order make 1e-6 of it, training some more."""

    tolerance = 1e-3
