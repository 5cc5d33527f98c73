"""A recorded judgement: reads its file, which somebody else may have written, and checks it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.runner.answers.judge.answer import CheckedJudgement
from manyheads.runner.answers.judge.claims import REFUSED, claims_of
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.measure.rounds import is_base_first
from manyheads.runner.answers.measure.rows import (
    BASE,
    CHANGE,
    PURPOSES,
    ROUND,
    RunRow,
    broken,
    is_sealed,
    latest,
)
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.records.claims import differences_of
from manyheads.runner.run.data_files import read_json

FILE = "judgement.json"


def read(content: Any) -> tuple[Question, list[RunRow]]:
    """The question and the rows of a judgement. Raises ConfigurationError if ``content`` is not a judgement."""
    lines = content.get("lines") if isinstance(content, dict) else None
    if (
        not isinstance(lines, list)
        or not lines
        or not all(isinstance(line, dict) and isinstance(line.get("content"), dict) for line in lines)
    ):
        raise ConfigurationError("it is not a judgement: it has no rows.")
    question, rows = Question.of(lines[0]["content"]), latest(lines)
    if other := next((row for row in rows if row.purpose not in PURPOSES or row.arm not in (BASE, CHANGE)), None):
        raise ConfigurationError(f"it is not a judgement: run {other.number} has an unknown arm or purpose.")
    return question, rows


def faults(content: Mapping[str, Any]) -> list[str]:
    """All inconsistencies within a judgement, as sentences. Raises ConfigurationError if it cannot be read."""
    question, rows = read(content)
    wrong = [f"the ledger: {reason}"] if (reason := broken(content["lines"])) else []
    try:
        wrong += [
            *_of_rows(rows),
            *_of_order(question, rows),
            *question.faults(rows),
        ]
        claims = claims_of(question, rows)
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, StopIteration):
        raise ConfigurationError("it is not a judgement: a value of a run is missing, or has another type.") from None
    claimed = content.get("claims")
    if claims.verdict == REFUSED and not (isinstance(claimed, dict) and claimed.get("verdict") == REFUSED):
        wrong += claims.reasons
    return [*wrong, *differences_of(claims.to_json(), claimed)]


def _of_rows(rows: Sequence[RunRow]) -> Iterator[str]:
    """Missing or overlapping runs."""
    for expected, row in enumerate(rows):
        if row.number != expected:
            yield f"run {expected} is missing: the next is run {row.number}"
            break
    for one, other in pairwise(rows):
        if one.ended is not None and other.began < one.ended:
            yield f"run {other.number} began before run {one.number} had ended"


def _of_order(question: Question, rows: Sequence[RunRow]) -> Iterator[str]:
    """Rounds that are incomplete, or not in the order of the recorded draw."""
    rounds: dict[int, dict[int, RunRow]] = {}
    for row in rows:
        if row.purpose == ROUND:
            first = BASE if is_base_first(question.draw, ROUND, row.round) else CHANGE
            if (row.arm == first) != (row.place == 0):
                yield f"run {row.number}: by the recorded draw, {first} runs first in round {row.round + 1}"
            rounds.setdefault(row.round, {})[row.place] = row
    last = max(rounds, default=-1)
    incomplete = next((number for number in range(last) if rounds.get(number, {}).keys() != {0, 1}), None)
    if incomplete is not None:
        yield f"round {incomplete + 1} is incomplete, and later ones were run"


class RecordedJudgement(NamedTuple):
    """The file of a judgement."""

    path: Path
    content: Mapping[str, Any]
    question: Question
    rows: list[RunRow]

    @classmethod
    def of(cls, path: Path) -> "RecordedJudgement":
        """The judgement in a file or folder. Raises ConfigurationError if it cannot be read."""
        path = path / FILE if path.is_dir() else path
        try:
            content = read_json(path)
            return cls(path, content, *read(content))
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}.") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @property
    def is_own(self) -> bool:
        """Whether the user recorded all of it."""
        return is_sealed(self.content["lines"])

    def check(self) -> CheckedJudgement:
        """Whether its rows are consistent and its claims follow from them. Runs nothing.

        Raises ConfigurationError if it cannot be read.
        """
        try:
            wrong = faults(self.content)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.path}: {error}") from None
        words = self.question.arguments_again(self.path, is_own=self.is_own)
        return CheckedJudgement(self.path, len(self.rows), wrong, self.is_own, invocation.command("judge", *words))
