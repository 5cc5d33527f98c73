"""Keys and NumPy's permutations, which must be the same next year."""

import numpy as np

from manyheads.runner.data.keys import permutation, sample_keys, splitmix


def test_permutations_never_change():
    assert permutation(10, seed=1, epoch=0).tolist() == [2, 9, 3, 7, 0, 1, 6, 4, 5, 8]
    assert permutation(10, seed=1, epoch=1).tolist() == [0, 4, 3, 7, 2, 6, 1, 8, 9, 5]
    assert permutation(5, seed=2**40 + 7, epoch=3).tolist() == [2, 1, 4, 3, 0]
    assert permutation(1797, seed=1, epoch=2)[:8].tolist() == [543, 436, 1526, 1164, 921, 339, 1277, 381]


def test_sample_keys_never_change():
    keys = sample_keys(1, 0, np.array([0, 1, 1796]))
    assert keys.tolist() == [12793040940332582595, 7806873273932414515, 12831052712001451774]
    assert sample_keys(2**63, 89, np.array([5])).tolist() == [11048039660886563279]


def test_splitmix_is_the_published_one():
    """First outputs for state 1234567, from the reference implementation."""
    with np.errstate(over="ignore"):
        state, golden = np.uint64(1234567), np.uint64(0x9E3779B97F4A7C15)
        outputs = [int(splitmix(state + np.uint64(i) * golden)) for i in range(3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_a_permutation_is_one_and_depends_on_seed_and_epoch():
    orders = [permutation(100, seed=seed, epoch=epoch) for seed in (1, 2, 2**32 + 1) for epoch in (0, 1)]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({tuple(order) for order in orders}) == 6
    assert permutation(100, seed=1, epoch=0).tolist() == orders[0].tolist()


def test_keys_are_those_of_each_sample_alone():
    whole = sample_keys(1, 2, np.arange(1000))
    assert whole.dtype == np.uint64
    assert len(set(whole.tolist())) == 1000
    assert sample_keys(1, 2, np.array([7, 3], np.int32)).tolist() == [whole[7], whole[3]]
    assert not set(whole.tolist()) & set(sample_keys(1, 3, np.arange(1000)).tolist())
    assert not set(whole.tolist()) & set(sample_keys(2, 2, np.arange(1000)).tolist())


def test_keys_are_evenly_spread():
    bits = sample_keys(1, 0, np.arange(4096))[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.04  # five standard deviations
