"""Replayed pipelines: the idle time that is known of their schedules."""

import pytest

from manyheads.runner.answers.scale.simulator.network import Cluster, Link
from manyheads.runner.answers.scale.simulator.pipeline import balanced
from manyheads.runner.answers.scale.simulator.predict import replayed
from manyheads.runner.answers.scale.simulator.replay import Assumptions
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout

PLAIN = Assumptions(spread=0.0, slowdown=0.0)
FAST = Link(latency=0.0, bandwidth=1e15, achieved=1.0, start=0.0)
UNITS = tuple(Unit(bytes=1e6, share=0.125, activations=1e3) for _ in range(8))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (4, 8), (4, 4), (8, 16)])
def test_idle_time_is_that_of_one_micro_batch_in_all_other_stages(
    schedule: str, stages: int, micro_batches: int
) -> None:
    """Source: Narayanan et al. 2021 (https://arxiv.org/abs/2104.04473), section 2.2."""
    step = DeviceUpdate(UNITS, forward=0.4, backward=0.8, micro_batches=micro_batches)
    exchanges = Exchanges(Layout(pipeline=stages), schedule=schedule)
    parts = replayed(step, exchanges, Cluster(8, FAST, FAST), PLAIN)
    assert parts.computing == pytest.approx(micro_batches * 1.2 / stages)
    assert parts.idle == pytest.approx((stages - 1) * 1.2 / stages, rel=1e-3)


def test_several_stages_per_rank_idle_less() -> None:
    step = DeviceUpdate(UNITS, forward=0.4, backward=0.8, micro_batches=8)

    def idle(schedule: str, stages_per_rank: int) -> float:
        exchanges = Exchanges(Layout(pipeline=4), schedule=schedule, stages_per_rank=stages_per_rank)
        return replayed(step, exchanges, Cluster(8, FAST, FAST), PLAIN).idle

    assert idle("interleaved", 2) < 0.75 * idle("1f1b", 1)
    assert idle("looped_bfs", 2) < 0.75 * idle("gpipe", 1)


def test_replicas_of_a_pipeline_reduce_the_gradients_of_their_stage() -> None:
    slow = Link(latency=0.0, bandwidth=1e6, achieved=1.0, start=0.0, algorithms=("ring",))
    step = DeviceUpdate(UNITS, forward=0.4, backward=0.8, micro_batches=4)
    exchanges = Exchanges(Layout(pipeline=2, replicate=2), schedule="1f1b")
    parts = replayed(step, exchanges, Cluster(8, slow, slow), PLAIN)
    assert parts.exchange == pytest.approx(4 * 1e6 / 1e6)


def test_chunks_are_consecutive_balanced_and_never_empty() -> None:
    units = tuple(Unit(0, share) for share in (0.0, 0.2, 0.2, 0.2, 0.2, 0.2))
    chunks = balanced(units, 3)
    assert [unit for chunk in chunks for unit in chunk] == [*units]
    assert sorted(round(sum(unit.share for unit in chunk), 2) for chunk in chunks) == [0.2, 0.4, 0.4]
    assert [len(chunk) for chunk in balanced(units, 6)] == [1] * 6
    assert len(balanced(units, 9)) == 6
    assert all(balanced((Unit(0, 1.0), Unit(0, 0.0), Unit(0, 0.0)), 3))
