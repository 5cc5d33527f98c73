import pytest

from manyheads.runner.answers.estimate.run_estimate import HELD, SENT
from tests.charts.sight import alike


@pytest.mark.parametrize("colours", [HELD.values(), SENT], ids=["held", "sent"])
def test_colours_of_the_picture_are_told_apart_by_all_readers(colours):
    assert len(colours) >= 6
    assert [*alike(colours)] == []
