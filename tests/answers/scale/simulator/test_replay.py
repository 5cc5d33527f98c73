"""Replayed updates, where their time can be found by hand."""

import math
from dataclasses import replace

import pytest

from manyheads.runner.answers.scale.simulator.network import Cluster, Link
from manyheads.runner.answers.scale.simulator.predict import replayed
from manyheads.runner.answers.scale.simulator.replay import Assumptions, Parts, harmonic
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.answers.scale.simulator.timeline import Timeline
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout

PLAIN = Assumptions(spread=0.0, slowdown=0.0)
ONE_GIGABYTE = Link(latency=0.0, bandwidth=1e9, achieved=1.0, start=0.0, algorithms=("ring",))
CLUSTER = Cluster(8, ONE_GIGABYTE, ONE_GIGABYTE)
UNITS = tuple(Unit(bytes=1e8, share=0.25, activations=1e7) for _ in range(4))  # 0.4 GB
STEP = DeviceUpdate(UNITS, forward=0.4, backward=0.8, optimizer=0.1)
TWO = Layout(replicate=2)


def update(exchanges: Exchanges, step: DeviceUpdate = STEP, assumptions: Assumptions = PLAIN) -> Parts:
    return replayed(step, exchanges, CLUSTER, assumptions)


def test_one_device_computes() -> None:
    parts = update(Exchanges())
    assert parts.seconds == pytest.approx(1.3)
    assert (parts.exchange, parts.stragglers, parts.data) == (0, 0, 0)


def test_gradients_that_are_exchanged_in_the_end_add_their_time() -> None:
    assert update(Exchanges(TWO)).exchange == pytest.approx(0.4)


def test_of_overlapping_buckets_only_the_last_adds_its_time() -> None:
    """A bucket for each unit, every 0.2 s: only the last one has no computing beside it."""
    parts = update(Exchanges(TWO, overlaps=True, bucket_bytes=1e8))
    assert parts.exchange == pytest.approx(0.1)
    smaller = update(Exchanges(TWO, overlaps=True, bucket_bytes=1e7))
    assert smaller.exchange == pytest.approx(0.01)
    once = update(Exchanges(TWO, overlaps=True, bucket_bytes=math.inf))
    assert once.exchange == pytest.approx(0.4)


def test_a_slow_network_delays_all_buckets() -> None:
    parts = update(Exchanges(TWO, overlaps=True, bucket_bytes=1e8), assumptions=Assumptions(0.0, 0.0, rate=0.1))
    assert parts.seconds == pytest.approx(0.4 + 0.2 + 4 * 1.0 + 0.1)  # the first is ready after a quarter of 0.8 s


def test_compression_halves_what_is_sent() -> None:
    assert update(Exchanges(TWO, gradient_scale=0.5)).exchange == pytest.approx(0.2)


def test_only_the_last_micro_batch_exchanges_gradients() -> None:
    step = DeviceUpdate(UNITS, forward=0.4, backward=0.8, micro_batches=3)
    parts = update(Exchanges(TWO), step)
    assert (parts.computing, parts.exchange) == pytest.approx((3.6, 0.4))


def test_a_cycle_delays_what_is_ready() -> None:
    parts = update(Exchanges(TWO, overlaps=True, bucket_bytes=1e8, cycle=0.02))
    assert parts.exchange == pytest.approx(0.11)


def test_shards_are_gathered_while_the_unit_before_is_computed() -> None:
    """Gathered twice and scattered once; seen are the first gather and the last scatter, of 0.05 s each."""
    sharded = Exchanges(Layout(shard=2), overlaps=True, bucket_bytes=math.inf, gathers=2)
    assert update(sharded).exchange == pytest.approx(0.15)
    assert update(sharded).optimizer == pytest.approx(0.05)
    slow = update(sharded, assumptions=Assumptions(0.0, 0.0, rate=0.1))
    assert slow.seconds == pytest.approx(12 * 0.5 + 0.05, rel=0.2)


def test_a_tensor_group_waits_for_sums_of_activations() -> None:
    parts = update(Exchanges(Layout(tensor=2), activation_sums=4))
    assert parts.computing == pytest.approx(0.6)
    assert parts.exchange == pytest.approx(4 * 4 * 0.01)


def test_a_sharded_optimizer_sends_the_weights() -> None:
    parts = update(Exchanges(TWO, shards_optimizer=True))
    assert (parts.optimizer, parts.exchange) == pytest.approx((0.05, 0.4 + 0.2))


def test_an_exchange_every_eight_updates_costs_an_eighth() -> None:
    assert update(Exchanges(TWO, overlaps=True, period=8)).exchange == pytest.approx(0.4 / 8)


def test_copies_of_one_process_wait_for_weights_before_each_forward_pass() -> None:
    assert update(Exchanges(TWO, copies=True)).exchange == pytest.approx(0.4 + 0.4)


def test_the_slowest_of_many_is_waited_for() -> None:
    spread = Assumptions(spread=0.01, slowdown=0.0)
    parts = update(Exchanges(TWO), assumptions=spread)
    assert parts.stragglers == pytest.approx(1.2 * 0.01 * 0.5)
    measured = update(Exchanges(TWO), assumptions=replace(spread, spread=0.02))
    assert measured.stragglers == pytest.approx(2 * parts.stragglers)
    assert harmonic(4) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4)


def test_what_is_exchanged_beside_computing_slows_it_down() -> None:
    parts = update(Exchanges(TWO, overlaps=True, bucket_bytes=1e8), assumptions=Assumptions(0.0, slowdown=0.1))
    assert parts.computing == pytest.approx(1.2 + 0.1 * 0.3)


def test_an_update_waits_for_its_batch() -> None:
    slow = DeviceUpdate(UNITS, 0.4, 0.8, samples=100, loading=0.04, loaders=2)
    assert update(Exchanges(TWO), slow).data == pytest.approx(2.0 - 1.6)
    assert update(Exchanges(TWO), DeviceUpdate(UNITS, 0.4, 0.8, samples=100, loading=0.004, loaders=2)).data == 0
    alone = DeviceUpdate(UNITS, 0.4, 0.8, samples=100, loading=0.004)
    assert update(Exchanges(TWO), alone).data == pytest.approx(0.4)  # the rank loads by itself, and nothing overlaps
    few = DeviceUpdate(UNITS, 0.4, 0.8, samples=100, loading=0.04, loaders=4, cores=4)
    assert update(Exchanges(TWO), few).seconds == pytest.approx(2.0)  # two cores for each rank


def test_one_process_loads_for_all_of_its_devices() -> None:
    step = DeviceUpdate(UNITS, 0.4, 0.8, samples=100, loading=0.04, loaders=2)
    assert update(Exchanges(TWO, copies=True), step).seconds == pytest.approx(4.0)


def test_a_timeline_counts_what_overlaps() -> None:
    timeline = Timeline()
    timeline.run("compute", "passes", 1.0)
    timeline.run("compute", "passes", 1.0, ready=2.0)
    timeline.run("network", "all-reduce", 2.0, ready=0.5)
    assert timeline.overlap() == pytest.approx(0.5 + 0.5)
    assert timeline.busy("compute") == 2.0
