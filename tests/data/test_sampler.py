"""Which samples each rank takes: the same global batches whatever the number of ranks and micro-batches."""

import tracemalloc
from itertools import product

import numpy as np
import pytest

from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.keys import permutation
from manyheads.runner.data.order import BlockOrder, Feistel, Order, Shuffle
from manyheads.runner.data.rank.sampler import BatchIndices, EvaluationSampler, TrainingSampler

RANKS, ACCUMULATIONS, BATCH = (1, 2, 3), (1, 2), 12
COMBINATIONS = list(product(RANKS, ACCUMULATIONS))
SIZES = (12, 13, 31, 36, 47)


def training(
    size: int | Order, *, rank: int = 0, ranks: int = 1, accumulation: int = 1, drop_last: bool = True, seed: int = 1
):
    order = Shuffle(size, seed=seed) if isinstance(size, int) else size
    batches = GlobalBatches(order.size, batch_size=BATCH, drop_last=drop_last)
    return TrainingSampler(order, batches, rank=rank, world_size=ranks, accumulation=accumulation)


def updates(
    size: int | Order, *, ranks: int, accumulation: int, drop_last: bool, epoch: int = 0
) -> list[list[BatchIndices]]:
    """For each update the requests of all ranks, micro-batch by micro-batch."""
    each = [
        list(training(size, rank=r, ranks=ranks, accumulation=accumulation, drop_last=drop_last).epoch(epoch))
        for r in range(ranks)
    ]
    assert len({len(requests) for requests in each}) == 1  # all ranks keep step
    assert len(each[0]) % accumulation == 0
    return [
        [each[rank][at + micro] for micro in range(accumulation) for rank in range(ranks)]
        for at in range(0, len(each[0]), accumulation)
    ]


def taken(requests: list[BatchIndices]) -> list[int]:
    return [index for request in requests for index in request.indices[: request.count].tolist()]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("ranks", "accumulation"), COMBINATIONS)
def test_ranks_and_micro_batches_share_the_same_global_batches(ranks, accumulation, size, drop_last):
    order = permutation(size, seed=1, epoch=0).tolist()
    batches = [order[at : at + BATCH] for at in range(0, size, BATCH)]
    if drop_last and size % BATCH:
        del batches[-1]
    shares = updates(size, ranks=ranks, accumulation=accumulation, drop_last=drop_last)
    assert [taken(update) for update in shares] == batches
    assert training(size, drop_last=drop_last).updates == len(batches)


@pytest.mark.parametrize("order", [Feistel(47, seed=1), BlockOrder(47, seed=1, block=5, window=3)])
@pytest.mark.parametrize(("ranks", "accumulation"), COMBINATIONS)
def test_a_computed_order_is_the_same_on_any_ranks_from_any_update_on(order, ranks, accumulation):
    whole = order.at(2, np.arange(47)).tolist()
    shares = updates(order, ranks=ranks, accumulation=accumulation, drop_last=False, epoch=2)
    assert [taken(update) for update in shares] == [whole[at : at + BATCH] for at in range(0, 47, BATCH)]
    tail = training(order, rank=ranks - 1, ranks=ranks, accumulation=accumulation, drop_last=False).epoch(2, 3)
    last = [request.indices.tolist() for update in shares[3:] for request in update[ranks - 1 :: ranks]]
    assert [request.indices.tolist() for request in tail] == last


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("ranks", "accumulation"), COMBINATIONS)
def test_weights_make_the_average_over_ranks_the_global_mean(ranks, accumulation, size, drop_last):
    values = np.random.RandomState(0).randn(size)  # each sample's loss, or one number of its gradient
    for requests in updates(size, ranks=ranks, accumulation=accumulation, drop_last=drop_last):
        added = sum(values[request.indices].mean() * request.weight for request in requests)
        assert added / ranks == pytest.approx(values[taken(requests)].mean(), abs=1e-14)


@pytest.mark.parametrize(("ranks", "accumulation"), COMBINATIONS)
def test_a_rank_without_samples_keeps_step_with_weight_0(ranks, accumulation):
    requests = updates(13, ranks=ranks, accumulation=accumulation, drop_last=False)[1]
    assert sorted(request.count for request in requests) == [0] * (len(requests) - 1) + [1]
    for request in requests:
        assert len(request.indices) == 1  # something for the forward pass
        assert (request.weight == 0) == (request.count == 0)


def test_full_batches_of_one_micro_batch_have_exactly_weight_1():
    for ranks in RANKS:
        for requests in updates(36, ranks=ranks, accumulation=1, drop_last=True):
            assert {request.weight for request in requests} == {1.0}


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("accumulation", ACCUMULATIONS)
def test_first_update_gives_exactly_the_tail(accumulation, drop_last):
    sampler = training(47, rank=1, ranks=3, accumulation=accumulation, drop_last=drop_last)
    whole = list(sampler.epoch(4))
    for first in range(sampler.updates + 1):
        tail = list(sampler.epoch(4, first))
        assert len(tail) == len(whole) - first * accumulation
        for one, other in zip(tail, whole[first * accumulation :], strict=True):
            assert one.indices.tolist() == other.indices.tolist()
            assert (one.epoch, one.count, one.weight) == (other.epoch, other.count, other.weight)


def test_the_order_depends_on_seed_and_epoch_only():
    def order(seed: int, epoch: int) -> list[int]:
        return taken(list(training(47, seed=seed, drop_last=False).epoch(epoch)))

    assert order(1, 0) == order(1, 0)
    assert sorted(order(1, 0)) == list(range(47))
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 11, 12, 13, 25])
def test_evaluation_takes_every_sample_once(size, ranks):
    samplers = [EvaluationSampler(size, batch_size=BATCH, rank=rank, world_size=ranks) for rank in range(ranks)]
    each = [list(sampler.epoch(0)) for sampler in samplers]
    assert {len(requests) for requests in each} == {samplers[0].updates}
    assert sorted(index for requests in each for index in taken(requests)) == list(range(size))
    assert all(request.count == len(request.indices) for requests in each for request in requests)
    for batch in zip(*each, strict=True):  # no rank has much more to do than another
        counts = [request.count for request in batch]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("limit", [1, 2, 0.5])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_limited_evaluation_takes_the_same_random_sample_on_any_number_of_ranks(limit, ranks):
    def indices(seed: int, *, epoch: int = 0, ranks: int = ranks, limit: float | None = limit) -> list[int]:
        share = {"batch_size": BATCH, "world_size": ranks, "limit": limit, "seed": seed}
        each = [list(EvaluationSampler(101, rank=rank, **share).epoch(epoch)) for rank in range(ranks)]
        return [index for batch in zip(*each, strict=True) for index in taken([*batch])]

    drawn = indices(0)
    assert len({*drawn}) == len(drawn) == {1: BATCH, 2: 2 * BATCH, 0.5: 4 * BATCH}[limit]
    assert drawn == indices(0, epoch=3) == indices(0, ranks=1)
    assert drawn != indices(1)
    assert max(drawn) > len(drawn)  # not the first ones
    assert indices(0, limit=100) == list(range(101))


def test_of_a_million_samples_it_holds_an_index_array_and_nothing_else():
    tracemalloc.start()
    try:
        requests = training(10**6).epoch(0)
        held = [next(requests) for _ in range(100)]
        now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(request.indices) for request in held) == 100 * BATCH
    assert now < most < 4.2e6  # bytes: four for each sample, and the generator's state


@pytest.mark.parametrize("order", [Feistel(10**8, seed=1), BlockOrder(10**8, seed=1, block=100, window=1000)])
def test_of_a_hundred_million_samples_in_a_computed_order_it_holds_nothing(order):
    """It resumes in the last thousandth of an epoch, on eight ranks, at once."""
    first = 10**8 // BATCH - 1000
    training(order, rank=7, ranks=8).epoch(5, first)  # what is imported at first use
    tracemalloc.start()
    try:
        requests = training(order, rank=7, ranks=8).epoch(5, first)
        held = [next(requests) for _ in range(100)]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len({index for request in held for index in request.indices.tolist()}) == sum(r.count for r in held)
    assert most < 1e5  # bytes
