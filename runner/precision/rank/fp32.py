"""precision=fp32: single precision everywhere, TF32 switched off."""

from manyheads.runner.precision.rank.precision import PrecisionPolicy


class FP32(PrecisionPolicy):
    """The base class, unchanged."""
