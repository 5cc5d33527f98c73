"""``estimate`` rehearses an update and ``scale`` replays one: they must agree on what is exchanged in it."""

from collections import Counter
from functools import cache

import pytest

from manyheads.runner.answers.estimate.run_estimate import plan
from manyheads.runner.answers.measure.estimated import PlannedEstimate, estimated
from manyheads.runner.answers.measure.findings import RankHolds
from manyheads.runner.answers.scale.simulator.network import Cluster, Group, Link
from manyheads.runner.answers.scale.simulator.replay import Assumptions, Replay
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import Origin
from manyheads.runner.parallel.exchanges import Exchanges
from tests.tail import tail

NAMED = {"broadcast": "all-gather"}  # zero1's weights are broadcast by each rank in turn, which gathers them
RANKS, WIDTH, DEPTH = 4, 64, 2
MODEL = ("model=gpt", f"model.width={WIDTH}", f"model.depth={DEPTH}", "model.heads=4")
TEXT = ("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "data.batch_size=16")


class Counting(Replay):
    """Counts the bytes of the collectives that it replays, by kind."""

    def __init__(self, step: DeviceUpdate, exchanges: Exchanges):
        link = Link(1e-6, 1e9)
        super().__init__(step, exchanges, Cluster(8, link, link), Assumptions())
        self.sent: Counter[str] = Counter()

    def seconds(self, kind: str, payload: float, group: Group) -> float:
        if group.size > 1:
            self.sent[kind] += round(payload)
        return super().seconds(kind, payload, group)


def planned(*overrides: str) -> PlannedEstimate:
    ranks = f"launcher.nproc_per_node={RANKS}"
    (found,) = plan(CommandLine.of((*MODEL, *TEXT, "trainer.device=cpu", ranks, *overrides), None), Origin())
    return found


@cache
def rehearsed(*overrides: str) -> RankHolds:
    return estimated(planned(*overrides), alone=False).largest


def parameters() -> int:
    """Bytes of all weights."""
    return rehearsed("parallel=ddp").parameters


@pytest.mark.parametrize(
    "overrides",
    [
        ["parallel=ddp"],
        ["parallel=zero1"],
        ["parallel=fsdp"],
        tail(["parallel=fsdp", "parallel.reshard=after_backward"]),
        pytest.param(["parallel=horovod"], marks=pytest.mark.needs("horovod")),
    ],
)
def test_what_is_replayed_is_what_is_rehearsed(overrides: list[str]) -> None:
    found = planned(*overrides)
    assert found.run is not None
    units = tuple(Unit(parameters() / (DEPTH + 1), 1 / (DEPTH + 1)) for _ in range(DEPTH + 1))
    replay = Counting(DeviceUpdate(units, 0.1, 0.2), found.run.parallel.exchanges(devices=RANKS))
    replay.passes(units)
    replay.conclude()
    traffic = rehearsed(*overrides).traffic or {}
    largest = {NAMED.get(kind, kind): each.bytes for kind, each in traffic.items() if each.bytes > 0.05 * parameters()}
    assert largest.keys() == replay.sent.keys()
    for kind, size in largest.items():
        assert replay.sent[kind] == pytest.approx(size, rel=0.15), kind
