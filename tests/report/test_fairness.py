"""What differs between runs although nobody swept it."""

from types import SimpleNamespace

import pytest

from manyheads.runner.report.fairness import ENVIRONMENT


@pytest.mark.parametrize(
    ("bits", "says"),
    [
        ([], None),
        ([0.0] * 20, "none"),
        ([4.0] + [0.0] * 19, "none"),
        ([4.0] * 3 + [0.0] * 17, "power cap"),
        ([4.0 + 0x40] * 20 + [float("nan")], "power cap and hardware thermal"),
    ],
)
def test_throttling_is_named_where_it_lasted(bits, says):
    row = SimpleNamespace(jobs=[SimpleNamespace(run=SimpleNamespace(gpu={"throttled_by": bits} if bits else {}))])
    assert ENVIRONMENT["throttling of GPUs"](row) == says
