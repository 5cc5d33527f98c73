"""A stand-in for NVIDIA Apex 25.05 where there is no GPU: what our adapters call, with the order and the errors
that Apex documents, and the same arithmetic on CPUs.

Sources: https://nvidia.github.io/apex/, and the behaviour of its tag 25.05. O1 only marks the functions that it patches
and casts nothing. What Apex leaves to the user's care and would compute wrongly, this one refuses.
"""

import warnings

from . import amp, optimizers, parallel  # noqa: F401


class DeprecatedFeatureWarning(FutureWarning):
    pass


def deprecated_warning(name: str) -> None:
    warnings.warn(f"apex.{name} is deprecated", DeprecatedFeatureWarning, stacklevel=3)
