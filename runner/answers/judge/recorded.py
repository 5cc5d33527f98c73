"""A recorded judgement: reads its file, which somebody else may have written, and checks it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.runner.answers.judge.answer import CheckedJudgement
from manyheads.runner.answers.judge.check_judgement import faults, read
from manyheads.runner.answers.judge.judgement import FILE
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.measure.rows import RunRow, is_sealed
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run.data_files import read_json


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
