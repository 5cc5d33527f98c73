"""precision=fp32: single precision everywhere, TF32 switched off."""

from manyheads.runner.precision.base.rank import Precision


class FP32(Precision):
    """The base class is the plain case."""
