"""The ranks that others waited for, in words, and why: as far as their machines' counts tell, compared with others'."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median_high, median_low
from typing import TYPE_CHECKING

from manyheads.runner.run.json_types import SlowRankJson

if TYPE_CHECKING:  # reports need only the words
    from manyheads.runner.machine.hindrances import Hindrances

OWN = {
    "data": "waiting for data",
    "compute": "computing",
    "optimizer": "in the optimizer's steps",
    "logging": "in callbacks and logging",
}  # the parts of the time in which a rank does not wait for others
ALWAYS = 0.5  # fraction of the intervals from which on a rank is called always slow
SHOWN = 3
# A cause must have lasted for this fraction of the time of training, and of the time by which the rank was slower.
NOTABLE, EXPLAINS = 0.1, 0.3
SLOWER = 1.2  # a clock is a cause if those of others are this many times as fast
FAR = 0.5  # fraction of the memory from which on its place is a cause
RETRANSMITTED = 0.01  # fraction of the TCP segments from which on they are a cause


def cause(part: str, rank: "Hindrances", every: "Sequence[Hindrances]", *, seconds: float, longer: float) -> str:
    """Why this rank was slow, as a clause; empty if nothing shows it.

    ``part``: the part of an update in which it took longer; ``every``: the counts of all ranks; ``seconds``: for which
    it has trained; ``longer``: by how many seconds it was slower than others.
    """
    least = max(NOTABLE * seconds, EXPLAINS * longer)
    for reason in _of_processors(rank, every, least):
        return reason
    return ", and ".join([*_of_data(part, rank, least), *_of_network(rank, every)])


def _of_processors(rank: "Hindrances", every: "Sequence[Hindrances]", least: float) -> Iterator[str]:
    def is_much(count: "Callable[[Hindrances], float]") -> bool:
        return count(rank) > least and count(rank) > 2 * median_low([count(peer) for peer in every])

    if rank.core.cores < (most := median_high([peer.core.cores for peer in every])):
        yield f"it may run on {rank.core.cores} {'core' if rank.core.cores == 1 else 'cores'}, others on {most}"
    if is_much(lambda peer: peer.core.throttled):
        yield f"its CPU quota was used up for {rank.core.throttled:.1f} s"
    if is_much(lambda peer: peer.hot):
        yield f"heat lowered the clock of its cores for {rank.hot:.1f} s"
    if is_much(lambda peer: peer.slowed):
        yield f"heat or the power limit lowered the clock of its GPU for {rank.slowed:.1f} s"
    if SLOWER * rank.clock < (usual := median_high([peer.clock for peer in every])) and rank.clock:
        yield f"the clock of its core was {rank.clock / 1000:.1f} GHz, that of others {usual / 1000:.1f} GHz"
    if is_much(lambda peer: peer.core.ready):
        yield f"it waited {rank.core.ready:.1f} s for a core that other processes used"
    if rank.far > FAR and rank.far > 2 * median_low([peer.far for peer in every]):
        yield f"{rank.far:.0%} of its memory is on another NUMA node than its cores"
    if rank.is_far and not all(peer.is_far for peer in every):
        yield "its GPU is on another NUMA node than its cores"


def _of_data(part: str, rank: "Hindrances", least: float) -> Iterator[str]:
    if part == "data":
        yield "its loader is slower"
        if rank.disk > least:
            yield f"processes on its machine waited {rank.disk:.1f} s for disks"


def _of_network(rank: "Hindrances", every: "Sequence[Hindrances]") -> Iterator[str]:
    lost = [peer.segments.retransmitted / max(1, peer.segments.sent) for peer in every]
    if (mine := rank.segments.retransmitted / max(1, rank.segments.sent)) > max(RETRANSMITTED, 2 * median_low(lost)):
        yield f"its machine retransmitted {mine:.0%} of its TCP segments"
    if 0 < rank.link < (usual := median_high([peer.link for peer in every])):
        yield f"its network interface has {rank.link:,} Mbit/s, that of others {usual:,}"


def slow_in_words(slow: Iterable[SlowRankJson]) -> str:
    """Such as: rank 1, always (in 9 of 10 intervals, for 12.3 s), mostly computing: its CPU quota was used up."""
    ranks = [*slow]
    more = [f"{len(ranks) - SHOWN} more in result.json"] if len(ranks) > SHOWN else []
    return "; ".join([*map(_in_words, ranks[:SHOWN]), *more])


def _in_words(slow: SlowRankJson) -> str:
    how = "always" if slow["intervals"] >= ALWAYS * slow["of"] else "at times" if slow["intervals"] > 1 else "once"
    why = f": {slow['cause']}" if slow["cause"] else ""
    often = f"in {slow['intervals']} of {slow['of']} intervals, for {slow['seconds']:.1f} s"
    return f"rank {slow['rank']}, {how} ({often}), mostly {OWN.get(slow['part'], slow['part'])}{why}"
