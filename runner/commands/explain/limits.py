"""What limits the speed of a run: its updates against each part of them alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

from manyheads.runner.option.rules import COMMUNICATION, COMPUTE, DATA
from manyheads.runner.option.rules import OPTIMIZER as OPTIMIZER_PART

UPDATE, LOADER, BATCH, PASSES, OPTIMIZER, EXCHANGE = "update", "loader", "batch", "passes", "optimizer", "exchange"
WHAT = {
    UPDATE: "an update, as in training",
    LOADER: "loading its batch",
    BATCH: "an update whose batch is in memory",
    PASSES: "forward and backward passes",
    EXCHANGE: "the exchange between ranks",
    OPTIMIZER: "the optimizer's step",
}
PART_OF = {LOADER: DATA, BATCH: COMPUTE, PASSES: COMPUTE, OPTIMIZER: OPTIMIZER_PART, EXCHANGE: COMMUNICATION}
LIMITS = {
    LOADER: "Loading data limits this run",
    BATCH: "Computing, including the communication within it, limits this run",
    PASSES: "Computing limits this run",
    OPTIMIZER: "The optimizer's step limits this run",
    EXCHANGE: "Communication limits this run",
}
LARGE = 0.5  # fraction of an update's time that a part takes alone, from which on it is what limits
NOTABLE = 1.1  # factor by which waiting for data slows updates down, from which on that is worth a sentence
BUSY = 0.3  # fraction by which the times of a part differ between rounds, from which on that is worth a sentence


@dataclass(frozen=True)
class Seconds:
    """How long something takes alone, over the rounds."""

    median: Annotated[float, "seconds for each update"]
    low: Annotated[float, "of the fastest round"]
    high: Annotated[float, "of the slowest round"]

    @classmethod
    def of(cls, rounds: Sequence[float]) -> "Seconds":
        """``rounds``: seconds in each of them, at least one."""
        return cls(median(rounds), min(rounds), max(rounds))


@dataclass(frozen=True)
class Limit:
    """The part that takes longest alone. ``name``: as in WHAT; ``part``: of an update's time."""

    name: Annotated[str, "what takes longest alone: loader, batch, passes, exchange or optimizer"]
    part: Annotated[str, "of an update's time: data, compute, communication or optimizer"]
    factor: Annotated[float, "the most by which updates could get faster, if everything else took no time"]
    sentence: str

    @classmethod
    def of(cls, seconds: Mapping[str, Seconds]) -> "Limit":
        """``seconds``: by name, of an update and of the parts that could be measured."""
        whole = seconds[UPDATE].median
        floors = {name: each.median for name, each in seconds.items() if name != UPDATE}
        if PASSES in floors:
            del floors[BATCH]
        name = max(floors, key=lambda each: floors[each])
        longest, factor = floors[name], max(1.0, whole / floors[name])
        found = f"{milliseconds(longest)} of an update's {milliseconds(whole)} ms"
        if longest >= LARGE * whole:
            most = f"speeding up everything else could make updates at most {factor:.2f} times as fast"
            sentence = f"{LIMITS[name]}: measured alone, it takes {found}, so {most}."
        else:
            sentence = f"No single part limits this run: measured alone, the longest, {WHAT[name]}, takes {found}."
        return cls(name, PART_OF[name], factor, sentence)


def waits_for_data(seconds: Mapping[str, Seconds], waited: float) -> str:
    """A sentence if updates wait for their batches for a notable time; otherwise empty. ``waited``: seconds of each."""
    whole = seconds[UPDATE].median
    factor = whole / max(whole - waited, seconds[BATCH].median)
    if factor < NOTABLE:
        return ""
    return (
        f"An update waits {milliseconds(waited)} ms for its batch: without that wait, updates would be about "
        f"{factor:.2f} times as fast."
    )


def milliseconds(seconds: float) -> str:
    """In three digits, or all before the point."""
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def variation(seconds: Mapping[str, Seconds]) -> float:
    """The largest fraction by which an update took longer in one round than in another."""
    update = seconds[UPDATE]
    return (update.high - update.low) / update.median
