"""Which micro-batches do not fit into memory, predicted from smaller ones."""

import pytest

from manyheads.runner.answers.tune.memory import excess

GB = 1e9


@pytest.mark.parametrize(
    ("samples", "peaks", "failed", "reason"),
    [
        (64, {}, [], ""),
        (64, {8: 2 * GB}, [], ""),  # one number does not tell what a sample takes
        (64, {8: 2 * GB, 16: 3 * GB}, [], ""),  # 9 GB
        (128, {8: 2 * GB, 16: 3 * GB}, [], "would need about 17.0 GB, by what 8 and 16 needed; a device has 10.0 GB"),
        (128, {8: 2 * GB, 16: 3 * GB, 32: 3.5 * GB}, [], ""),  # the largest two count
        (8, {16: 30 * GB, 32: 60 * GB}, [], ""),  # larger ones say nothing against it
        (32, {}, [16], "a micro-batch of 16 samples ran out of memory"),
        (32, {}, [32], "a micro-batch of 32 samples ran out of memory"),
        (32, {}, [64], ""),
    ],
)
def test_memory_grows_in_proportion_to_the_samples(samples, peaks, failed, reason):
    found = excess(samples, peaks, failed, 10 * GB)
    assert found.endswith(reason)
    assert bool(found) == bool(reason)
