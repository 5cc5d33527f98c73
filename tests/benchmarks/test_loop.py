"""The benchmark's loop is the one that runs use: it trains."""

import torch

from tests.benchmarks.loop import Prebuilt, by_hand, model, ours


def test_both_loops_train(tmp_path):
    before, data = torch.get_num_threads(), Prebuilt()
    torch.set_num_threads(1)
    try:
        assert by_hand(model(), data.pairs) > 0
        assert ours(data, tmp_path) > 0
    finally:
        torch.set_num_threads(before)
