"""A rank that measures updates as in training, and each of their parts alone, in turns."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from manyheads.runner.answers.measure.rank.measuring import measuring, program
from manyheads.runner.answers.measure.rank.parts import Part, UpdateParts
from manyheads.runner.loop.session import Session
from manyheads.runner.loop.trainer import Trainer

ROUNDS = 5
SECONDS = 0.3  # each part is repeated for this long in each round, at least once
ENDLESS = 10**9
More = Callable[[UpdateParts], Mapping[str, Any]]  # measures something else; returns it by its key in result.json


def floors(
    session: Session,
    *,
    only: Collection[str] | None = None,
    seconds: float = SECONDS,
    more: More = lambda parts: {},
) -> None:
    """Measure, and write ``floors`` (the seconds of each part in each round) and ``more`` to result.json.

    ``only``: the names of the parts to measure, by default all; ``seconds``: how long each is repeated in a round, at
    least once.
    """
    trainer = endless(session.trainer)
    session.update.prime(trainer.train.example, warm_up=trainer.settings.warm_up)
    parts = UpdateParts(trainer, session.run)
    measurable = {name: part for name, part in parts.known().items() if only is None or name in only}
    session.conclude(floors=measured(measurable, trainer, seconds=seconds), **more(parts))


def endless(trainer: Trainer) -> Trainer:
    """Change the trainer so that it does not end by itself; its schedule is unchanged."""
    trainer.settings = replace(trainer.settings, epochs=ENDLESS, total_steps=ENDLESS, last_step=ENDLESS)
    return trainer


def measured(parts: dict[str, Part], trainer: Trainer, *, seconds: float = SECONDS) -> dict[str, list[float]]:
    """Seconds of one repetition of each part, in each round; the parts take turns, so that drift affects all alike."""
    once = {name: part(1) for name, part in parts.items()}  # also warms up
    rounds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(ROUNDS):
        for name, part in parts.items():
            count = max(1, round(seconds / max(once[name], 1e-9)))
            once[name] = part(count) / count
            rounds[name].append(once[name])
        if trainer.stop.signal is not None:
            break
    return rounds


main = program(measuring(floors), __name__)
