"""Tests of what the lowest supported torch lacks, for `make compat`."""

import pytest

from manyheads.runner.machine.software import too_old


def from_torch(lowest: str) -> pytest.MarkDecorator:
    """Leaves a test out where torch is older."""
    return pytest.mark.skipif(too_old(lowest) is not None, reason=f"needs torch {lowest}")
