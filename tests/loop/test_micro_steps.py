"""What an update's micro-batches count, and which ranks have to ask the others for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.micro_steps import MicroSteps

BATCHES = [Batch(None, 2, 1.0, counted=6), Batch(None, 1, 1.0, counted=2)]


@pytest.mark.parametrize(("shares", "exchanges"), [(1, 0), (2, 1)])
def test_only_ranks_with_other_batches_are_asked_how_much_counts(shares, exchanges):
    asked = []

    def reduce(values: torch.Tensor) -> torch.Tensor:
        asked.append(values)
        return values * shares

    parallel = SimpleNamespace(data_size=shares, counts_samples=True, device=torch.device("cpu"), reduce=reduce)
    scores: Any = SimpleNamespace(task=SimpleNamespace(counts_samples=False), is_mean=True)
    none: Any = None
    steps = MicroSteps(none, none, scores, parallel, none).of(BATCHES)  # type: ignore[arg-type]
    assert [float(steps.weight(batch)) for batch in BATCHES] == [0.75, 0.25]
    assert len(asked) == exchanges
