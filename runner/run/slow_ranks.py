"""Describes in words the ranks that others waited for, from result.json."""

from collections.abc import Iterable

from manyheads.runner.run.json_types import SlowRankJson

OWN = {
    "data": "waiting for data",
    "compute": "computing",
    "optimizer": "in the optimizer's steps",
    "logging": "in callbacks and logging",
}  # the parts of the time in which a rank does not wait for others
ALWAYS = 0.5  # fraction of the intervals from which on a rank is called always slow
SHOWN = 3


def slow_in_words(slow: Iterable[SlowRankJson]) -> str:
    """Such as: rank 1, always (in 9 of 10 intervals, for 12.3 s), mostly computing: its CPU quota was used up."""
    known = [*slow]
    more = [f"{len(known) - SHOWN} more in result.json"] if len(known) > SHOWN else []
    return "; ".join([*map(_in_words, known[:SHOWN]), *more])


def _in_words(slow: SlowRankJson) -> str:
    how = "always" if slow["intervals"] >= ALWAYS * slow["of"] else "at times" if slow["intervals"] > 1 else "once"
    cause = f": {slow['cause']}" if slow["cause"] else ""
    often = f"in {slow['intervals']} of {slow['of']} intervals, for {slow['seconds']:.1f} s"
    return f"rank {slow['rank']}, {how} ({often}), mostly {OWN.get(slow['part'], slow['part'])}{cause}"
