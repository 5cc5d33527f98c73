"""The benchmark's loop is the one that runs use: it trains, also without what its rows leave out."""

import pytest
import torch

from tests.benchmarks import loop
from tests.benchmarks.loop import Prebuilt, by_hand, model, ours

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("without", ["", "watched", "collects", "records"])
def test_both_loops_train(tmp_path, monkeypatch, without):
    monkeypatch.setattr(loop, "STEPS", 50)
    before, data = torch.get_num_threads(), Prebuilt()
    torch.set_num_threads(1)
    try:
        assert by_hand(model(), data.pairs) > 0
        assert ours(data, tmp_path, **({without: False} if without else {})) > 0
    finally:
        torch.set_num_threads(before)
