"""The ranks that others waited for: why one is slow, as far as its machine shows it, and all of them in words.

A cause is what was counted on a rank's machine, against the other ranks'.
"""

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
NOTABLE = 0.1  # fraction of the time of training from which on a lack of something is a cause
EXPLAINS = 0.3  # fraction of the time that the rank took longer, which it must have lasted as well
SLOWER = 1.2  # a clock is a cause if those of others are this many times as fast
FAR = 0.5  # fraction of the memory
RESENT = 0.01  # fraction of the segments


def cause(part: str, own: "Hindrances", every: "Sequence[Hindrances]", *, seconds: float, longer: float) -> str:
    """Why this rank was slow, as a clause; empty if nothing shows it.

    ``part``: of an update, in which it took longer; ``every``: of all ranks; ``seconds``: that it has trained;
    ``longer``: seconds that it took longer than others.
    """
    least = max(NOTABLE * seconds, EXPLAINS * longer)
    for found in _of_processors(own, every, least):
        return found
    return ", and ".join([*_of_data(part, own, least), *_of_network(own, every)])


def _of_processors(own: "Hindrances", every: "Sequence[Hindrances]", least: float) -> Iterator[str]:
    def is_much(count: "Callable[[Hindrances], float]") -> bool:
        return count(own) > least and count(own) > 2 * median_low([count(each) for each in every])

    if own.core.cores < (most := median_high([each.core.cores for each in every])):
        yield f"it may run on {own.core.cores} {'core' if own.core.cores == 1 else 'cores'}, others on {most}"
    if own.core.throttled > least:
        yield f"its CPU quota was used up for {own.core.throttled:.1f} s"
    if is_much(lambda each: each.hot):
        yield f"its cores were too hot, with a lower clock, for {own.hot:.1f} s"
    if is_much(lambda each: each.slowed):
        yield f"its GPU had a lower clock for {own.slowed:.1f} s, because of heat or its power limit"
    if SLOWER * own.clock < (usual := median_high([each.clock for each in every])) and own.clock:
        yield f"its core's clock was {own.clock / 1000:.1f} GHz, others' {usual / 1000:.1f} GHz"
    if is_much(lambda each: each.core.ready):
        yield f"it waited {own.core.ready:.1f} s for a core that other processes had"
    if own.far > FAR and own.far > 2 * median_low([each.far for each in every]):
        yield f"{own.far:.0%} of its memory is on another NUMA node than its cores"
    if own.is_far and not all(each.is_far for each in every):
        yield "its GPU is on another NUMA node than its cores"


def _of_data(part: str, own: "Hindrances", least: float) -> Iterator[str]:
    if part == "data":
        yield "its loader is slower"
        if own.disk > least:
            yield f"processes on its machine waited {own.disk:.1f} s for disks"


def _of_network(own: "Hindrances", every: "Sequence[Hindrances]") -> Iterator[str]:
    lost = [each.segments.resent / max(1, each.segments.sent) for each in every]
    if (mine := own.segments.resent / max(1, own.segments.sent)) > max(RESENT, 2 * median_low(lost)):
        yield f"its machine had to send {mine:.0%} of its TCP segments again"
    if 0 < own.link < (usual := median_high([each.link for each in every])):
        yield f"its network interface has {own.link:,} Mbit/s, others {usual:,}"


def slow_in_words(slow: Iterable[SlowRankJson]) -> str:
    """Such as: rank 1, always (in 9 of 10 intervals, for 12.3 s), mostly computing: its CPU quota was used up."""
    known = [*slow]
    more = [f"{len(known) - SHOWN} more in result.json"] if len(known) > SHOWN else []
    return "; ".join([*map(_in_words, known[:SHOWN]), *more])


def _in_words(slow: SlowRankJson) -> str:
    how = "always" if slow["intervals"] >= ALWAYS * slow["of"] else "at times" if slow["intervals"] > 1 else "once"
    why = f": {slow['cause']}" if slow["cause"] else ""
    often = f"in {slow['intervals']} of {slow['of']} intervals, for {slow['seconds']:.1f} s"
    return f"rank {slow['rank']}, {how} ({often}), mostly {OWN.get(slow['part'], slow['part'])}{why}"
