"""Orders that are computed: each sample once, the same next year, and as random as a shuffle."""

import re

import numpy as np
import pytest

from manyheads.runner.data.order import LARGE, BlockOrder, Feistel, Order, Shuffle, build_order, quality
from manyheads.runner.errors import ConfigurationError
from tests.in_process import config, opened, small
from tests.tail import tailed

SIZES = tailed((1, 2, 3, 10, 1000, 1_281_167), always=(1, 2, 3, 10, 1000))
PARTS = [(1, 1), (3, 2), (7, 3), (5, 1000), (2000, 4), (100, 1)]  # samples of a block, and blocks of a window


def whole(order: Order, epoch: int = 0) -> np.ndarray:
    return order.at(epoch, np.arange(order.size))


@pytest.mark.parametrize("size", SIZES)
def test_every_sample_comes_once(size):
    orders = [Feistel(size, seed=3), *(BlockOrder(size, seed=3, block=block, window=n) for block, n in PARTS)]
    for order in orders if size < 10**6 else orders[::6]:
        for epoch in range(2):
            assert np.array_equal(np.sort(whole(order, epoch)), np.arange(size))


def test_computed_orders_never_change():
    assert whole(Feistel(10, seed=1)).tolist() == [2, 9, 5, 0, 6, 1, 8, 4, 3, 7]
    ends = np.array([0, 1, 99_999_999])
    assert Feistel(10**8, seed=2**40 + 7).at(89, ends).tolist() == [7713590, 93898305, 46957508]
    assert BlockOrder(10**8, seed=1, block=100, window=1000).at(1, ends).tolist() == [3422158, 34226177, 16411368]


@pytest.mark.parametrize("order", [Feistel(1000, seed=1), BlockOrder(1000, seed=1, block=30, window=4)])
def test_a_position_is_the_same_whatever_is_asked_with_it(order):
    expected = whole(order, 2)
    assert [order.at(2, np.array([each])).item() for each in range(0, 1000, 7)] == expected[::7].tolist()
    assert order.at(2, np.arange(990, 1000)[::-1]).tolist() == expected[990:][::-1].tolist()


def test_seeds_and_epochs_have_different_orders():
    orders = [whole(Feistel(1000, seed=seed), epoch) for seed in (1, 2, 2**32 + 1) for epoch in (0, 1)]
    same = [(one == other).sum() for number, one in enumerate(orders) for other in orders[:number]]
    assert max(same) < 8  # one is expected


def test_a_computed_order_is_as_random_as_numpys():
    """Mean and variance over seeds: what a random permutation has, and what NumPy's shuffle has in the same test."""
    size, seeds = 1009, range(200)
    for make in (Feistel, Shuffle):
        found = np.array([measures(whole(make(size, seed=seed))) for seed in seeds])
        mean, error = found.mean(0), found.std(0) / len(seeds) ** 0.5
        expected = [0, 0, 1, 2, 1, 1 / 3]
        assert (np.abs(mean - expected) < 4 * error + 0.01).all(), (make, mean, error)
        assert found[:, 3].var() < 3  # of four rounds instead of six: 5


def measures(order: np.ndarray) -> list[float]:
    """Correlation with the position and the next one, in standard deviations, and others that the test lists."""
    size, positions = len(order), np.arange(len(order))
    cells = np.histogram2d(positions, order, bins=16)[0]
    return [
        np.corrcoef(positions, order)[0, 1] * size**0.5,
        np.corrcoef(order[1:], order[:-1])[0, 1] * size**0.5,
        ((cells - size / 256) ** 2 / (size / 256)).sum() / 225,  # chi-squared per degree of freedom
        (np.abs(np.diff(order)) == 1).sum(),  # neighbours that stayed neighbours
        (order == positions).sum(),
        np.abs(order - positions).mean() / size,
    ]


def test_a_window_holds_whole_blocks_and_mixes_them():
    order = whole(BlockOrder(1005, seed=1, block=10, window=7))
    windows = [order[start : start + 70] for start in range(0, 1005, 70)]
    held = [np.unique(each // 10) for each in windows]
    is_short = [100 in each for each in held]  # the last block of the data, of five samples
    assert sum(is_short) <= 2
    before = is_short.index(True)
    assert all(len(each) == 7 for each in held[:before])
    jumps = np.mean([np.mean(np.diff(each // 10) == 0) for each in windows])
    assert jumps == pytest.approx(1 / 7, abs=0.04)  # two in a row of one block


def test_where_the_shorter_block_comes_changes():
    places = [
        int(np.flatnonzero(whole(BlockOrder(95, seed=1, block=10, window=1), epoch) >= 90)[0]) for epoch in range(60)
    ]
    assert len({place // 10 for place in places}) == 10


def test_the_quality_of_blocks_is_what_counting_gives():
    """On a disk that is sorted by class, with 100 samples in each class."""
    targets = np.arange(100_000) // 100
    few, many = (BlockOrder(100_000, seed=1, block=100, window=window) for window in (10, 500))
    text = r"(\d+) classes in a batch \(shuffle: (\d+)\), samples move by 0\.3\d of the data \(shuffle: 0\.3\d\)"
    found = [re.fullmatch(text, quality(order, targets, batch_size=256)) for order in (few, many)]
    assert all(found)
    numbers = [[int(each[1]), int(each[2])] for each in found if each]
    assert numbers[0][0] in range(10, 22)  # of one or two windows
    assert numbers[1][0] in range(190, 226)
    assert {shuffled for _, shuffled in numbers} <= set(range(220, 233))  # 1000 (1 - (1 - 1 / 1000) ** 256) = 226
    assert quality(few, None, batch_size=256).startswith("samples move by")


def test_the_order_follows_the_number_of_samples_unless_it_is_named():
    def built(kind: str, size: int) -> Order:
        return build_order(kind, size, seed=1, block=10, window=5)

    assert isinstance(built("auto", LARGE), Shuffle)
    assert isinstance(built("auto", LARGE + 1), Feistel)
    assert isinstance(built("shuffle", LARGE + 1), Shuffle)
    assert isinstance(built("feistel", 7), Feistel)
    assert isinstance(built("blocks", 7), BlockOrder)


def test_a_run_takes_the_samples_of_its_order(tmp_path):
    with opened(tmp_path, small("data.order=feistel", "trainer.overfit=3")) as trainer:
        for epoch in (0, 1):
            ids = [index for batch in trainer.train.epoch(epoch) for index in batch.ids]
            assert ids == Feistel(160, seed=1).at(0, np.arange(24)).tolist()


def test_blocks_of_data_in_memory_are_refused():
    text = "data.order=blocks: data=digits is in memory, where neighbours are not read together"
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        config("data=digits", "data.order=blocks")
