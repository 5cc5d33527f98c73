"""The benchmark of many machines measures runs that complete, and losses that are noticed."""

import random

import pytest

from tests.benchmarks.engines.__main__ import Run
from tests.benchmarks.engines.places import processes


@pytest.mark.processes
@pytest.mark.tail
def test_a_loss_is_noticed_and_the_run_completes_on_all_machines(tmp_path):
    with processes(3, tmp_path) as place:
        run = Run(place, 3, 4.0)
        assert run.helpers() == 0
        run.lose(place, 1, random.Random(0))
        found = run.measured()
    assert (found["attempts"], found["left"]) == (2, 0)
    assert 0 < found["notice"] < found["back"]
    assert found["messages"] > 3
    assert not run.folder.exists()
