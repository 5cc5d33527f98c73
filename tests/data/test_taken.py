"""What ranks note of the samples that they take: the same sums and bitmaps whatever the division."""

import base64
import zlib

import numpy as np
import pytest
import torch

from manyheads.runner.data.keys import Multiset, added
from manyheads.runner.data.rank import taken as module
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.parallel.rank.single import Single


def passed(epoch: int, samples: np.ndarray) -> ForwardResult:
    return ForwardResult(torch.zeros(()), 1.0, len(samples), float(len(samples)), None, (epoch, samples))


class Several(Single):
    """A rank whose exchanges find what the others hold."""

    def __init__(self, others: list[Taken]):
        super().__init__(rank=0, local_rank=0, world_size=1 + len(others), device_type="cpu")
        self.others, self.done = others, 0

    def reduce(self, values, operation="sum"):
        start, self.done = self.done, self.done + len(values) // 8
        for other in self.others:
            values += torch.from_numpy(np.unpackbits(other._bits[start : self.done], bitorder="little"))
        return values

    def gather(self, value):
        return [value, *(other._again for other in self.others)]


def test_digests_never_change():
    assert Multiset.of(0, np.arange(3)).digest == "621e7bece4a8b761"
    assert Multiset.of(89, np.array([10**9])).digest == "90c0c3540307f88d"


def test_a_multiset_is_the_same_however_it_is_divided():
    samples = np.random.RandomState(0).permutation(100_000)
    whole = Multiset.of(4, samples)
    parts = added([Multiset.of(4, part) for part in np.array_split(samples, 700)])
    assert (parts.count, parts.digest) == (100_000, whole.digest)
    others = [Multiset.of(3, samples), Multiset.of(4, samples[1:]), Multiset.of(4, np.append(samples[1:], samples[1]))]
    assert len({each.digest for each in (*others, whole)}) == 4


@pytest.mark.parametrize("chunk", [1, 5, 2**19])
def test_bitmaps_of_all_ranks_are_joined(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    ranks = [Taken(101, marks=True) for _ in range(3)]
    for rank, samples in zip(ranks, ([5, 100, 0], [7, 8, 5], [9, 9, 63]), strict=True):
        for part in (samples[:2], samples[2:]):
            rank.add(passed(2, np.array(part)))
        rank.close()
        assert rank.collect() == [Multiset.of(2, np.array(samples))]
    seen = ranks[0].flush(Several(ranks[1:]))
    assert seen is not None
    assert seen.again == [5, 9]  # on two ranks, and on one
    bits = np.frombuffer(zlib.decompress(base64.b64decode(seen.bits)), np.uint8)
    assert np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist() == [0, 5, 7, 8, 9, 63, 100]
    assert not ranks[0]._bits.any()


def test_a_sample_that_comes_again_in_another_window_is_noticed():
    taken = Taken(10, marks=True)
    for samples in ([1, 2], [3, 2]):
        taken.add(passed(0, np.array(samples)))
        taken.close()
    assert [each.count for each in taken.collect()] == [2, 2]
    seen = taken.flush(Single(rank=0, local_rank=0, world_size=1, device_type="cpu"))
    assert seen is not None
    assert seen.again == [2]
    assert Taken(10, marks=False).flush(Single(rank=0, local_rank=0, world_size=1, device_type="cpu")) is None
