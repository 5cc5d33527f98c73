"""precision=fp32: single precision everywhere, TF32 switched off."""

from manyheads.runner.precision.rank.precision import Precision


class FP32(Precision):
    """The base class, unchanged."""
