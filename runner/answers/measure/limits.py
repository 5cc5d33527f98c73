"""What limits the speed of a run: the seconds of its updates, compared with those of each part alone."""

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
LARGE = 0.5  # a part limits a run if it takes at least this fraction of an update's time alone
NOTABLE = 1.1  # waiting for data is mentioned if it slows updates down by at least this factor
BUSY = 0.3  # rounds that differ by a larger fraction than this are mentioned


@dataclass(frozen=True)
class Seconds:
    """How long an update, or a part of it alone, takes over the rounds."""

    median: Annotated[float, "seconds per update"]
    low: Annotated[float, "seconds per update in the fastest round"]
    high: Annotated[float, "seconds per update in the slowest round"]

    @classmethod
    def of(cls, rounds: Sequence[float]) -> "Seconds":
        """From the seconds per update in each round; at least one round."""
        return cls(median(rounds), min(rounds), max(rounds))


@dataclass(frozen=True)
class Limit:
    """The part of an update that takes longest alone."""

    name: Annotated[str, "what takes longest alone: loader, batch, passes, exchange or optimizer"]
    part: Annotated[str, "the kind of work that this is: data, compute, communication or optimizer"]
    factor: Annotated[float, "how many times as fast updates would be if everything else took no time"]
    sentence: str

    @classmethod
    def of(cls, seconds: Mapping[str, Seconds]) -> "Limit":
        """The limit. ``seconds``: of an update and of the parts that could be measured, by name."""
        update = seconds[UPDATE].median
        floors = {name: measured.median for name, measured in seconds.items() if name != UPDATE}
        if PASSES in floors:
            del floors[BATCH]
        name = max(floors, key=lambda part: floors[part])
        longest, factor = floors[name], max(1.0, update / floors[name])
        fraction = f"{milliseconds(longest)} of an update's {milliseconds(update)} ms"
        if longest >= LARGE * update:
            most = f"speeding up everything else could make updates at most {factor:.2f} times as fast"
            sentence = f"{LIMITS[name]}: measured alone, it takes {fraction}, so {most}."
        else:
            sentence = f"No single part limits this run: measured alone, the longest, {WHAT[name]}, takes {fraction}."
        return cls(name, PART_OF[name], factor, sentence)


def waits_for_data(seconds: Mapping[str, Seconds], waited: float) -> str:
    """A sentence if updates wait notably long for their batches; otherwise empty. ``waited``: seconds per update."""
    update = seconds[UPDATE].median
    factor = update / max(update - waited, seconds[BATCH].median)
    if factor < NOTABLE:
        return ""
    return (
        f"An update waits {milliseconds(waited)} ms for its batch: without that wait, updates would be about "
        f"{factor:.2f} times as fast."
    )


def milliseconds(seconds: float) -> str:
    """Milliseconds as text, with three significant digits, or without a fraction."""
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def variation(seconds: Mapping[str, Seconds]) -> float:
    """The largest fraction by which an update took longer in one round than in another."""
    update = seconds[UPDATE]
    return (update.high - update.low) / update.median
