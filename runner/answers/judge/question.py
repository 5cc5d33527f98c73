"""The question of a judgement, fixed before the first run: what is compared by which aims, the error rate, the draw."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from manyheads.runner.answers.judge.terms import ALPHA, Aim, aims_of, usual_least, usual_test
from manyheads.runner.answers.measure.hypotheses import NULLS
from manyheads.runner.answers.measure.numerics import Numerics
from manyheads.runner.answers.measure.rows import ROUND, RunRow
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.seal import digest_of

FORMAT = 3
FLOOR_ROUNDS, MOST_ROUNDS = 5, 200
LARGEST = 1e300  # of a number in a question
CLASSES = {  # of questions, by whether they have the key "command"
    False: "manyheads.runner.answers.judge.config_question.ConfigQuestion",
    True: "manyheads.runner.answers.judge.command.command_question.CommandQuestion",
}


class ArmComparison(NamedTuple):
    """Whether both arms compute the same. ``failure``: why only the change failed in its first run.

    ``exact``: the numerics in double precision, if they were compared.
    """

    failure: str | None = None
    numerics: Numerics | None = None
    exact: Numerics | None = None


@dataclass(frozen=True)
class Question(ABC):
    """What a judgement asks; the first line of its ledger.

    ``change``: in words; ``on``: the aims, as typed.
    ``least``: the smallest gain worth having in the first aim, as a fraction of the seconds or in the metric's unit.
    ``alpha``: the error rate over all aims.
    ``test``: a key of NULLS.
    ``draw``: the random number that decides coins and seeds.
    """

    change: str
    on: str
    least: float
    alpha: float
    test: str
    draw: str
    format: int = field(default=FORMAT, kw_only=True)

    asker: ClassVar[str]  # the module whose ``again`` asks such a question once more
    words: ClassVar[tuple[str, ...]] = ("draw", "change")  # fields that do not make it another question

    @staticmethod
    def of(content: Mapping[str, Any]) -> "Question":
        """The question in JSON that anyone may have written. Raises ConfigurationError if it is malformed."""
        module, _, name = CLASSES["command" in content].rpartition(".")
        try:
            question: Question = getattr(importlib.import_module(module), name)(**content)
        except (TypeError, ModuleNotFoundError):
            raise ConfigurationError("it is not a judgement: its question has other keys.") from None
        if question.format != FORMAT:
            raise ConfigurationError(f"it has format {question.format!r}, but this version reads {FORMAT}.")
        if not question.is_sound():
            raise ConfigurationError("it is not a judgement: a value of its question has another type.")
        _ = question.aims  # raises ConfigurationError
        return question

    def is_sound(self) -> bool:
        """Whether all values have the types that they are declared to have."""
        return (
            are_numbers((self.least, self.alpha))
            and are_texts((self.change, self.on, self.test, self.draw))
            and self.test in NULLS
            and 0 < self.alpha < 1
        )

    @property
    def id(self) -> str:
        """A digest by which a question is recognized when it is asked again."""
        return digest_of({**asdict(self), **dict.fromkeys(self.words)})[:12]

    @property
    def aims(self) -> tuple[Aim, ...]:
        """The aims: the first should improve, and none get worse."""
        return aims_of(self.on)

    def shares_seed(self, purpose: str) -> bool:
        """Whether both runs of a round with this purpose get the same seed."""
        return purpose == ROUND and self.test == "paired"

    @property
    def alpha_each(self) -> float:
        """The error rate of each aim."""
        return self.alpha / len(self.aims)

    @abstractmethod
    def refusals(self, rows: Sequence[RunRow]) -> tuple[str, ...]:
        """Why the arms cannot be compared, by the runs so far, in sentences."""

    @abstractmethod
    def comparison(self, rows: Sequence[RunRow]) -> ArmComparison:
        """Whether the arms compute the same, by the runs so far."""

    @abstractmethod
    def faults(self, rows: Sequence[RunRow]) -> Iterator[str]:
        """Sentences on runs that are not what the question asks for, or whose times contradict each other."""

    @abstractmethod
    def differences(self) -> Mapping[str, Sequence[Any]]:
        """The values of base and of the change, by what they are of."""

    @property
    def heading(self) -> str:
        """The change, in a few words."""
        return self.change

    @abstractmethod
    def changed_files(self) -> Sequence[str]:
        """The files of the working tree that differ from those that base runs."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """The arguments of the command that asks it."""

    def term_arguments(self) -> list[str]:
        """The flags of its aims, and of the terms that differ from the usual ones."""
        first = self.aims[0]
        least = [] if self.least == usual_least(first) else ["--least", repr(self.least)]
        alpha = [] if self.alpha == ALPHA else ["--alpha", repr(self.alpha)]
        test = [] if self.test == usual_test(first) else ["--test", self.test]
        return ["--on", self.on, *least, *alpha, *(["--paired"] if self.test == "paired" else test)]

    def arguments_again(self, path: Path, *, is_own: bool) -> list[object]:
        """The arguments that repeat the judgement in ``path`` on this machine.

        ``is_own``: whether the user recorded it; typed arguments are trusted, so somebody else's are not among them.
        """
        return ["--again", path]

    def caveats(self) -> Iterator[str]:
        """What the verdict does not cover, in sentences."""
        yield from ()


def are_numbers(values: Iterable[object]) -> bool:
    """Whether all values are numbers of an ordinary size."""
    return all(type(value) in (int, float) and abs(value) < LARGEST for value in values)  # type: ignore[arg-type]


def are_texts(values: Iterable[object]) -> bool:
    """Whether all values are text."""
    return all(isinstance(value, str) for value in values)
