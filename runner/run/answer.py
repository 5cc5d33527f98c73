"""The answer of a command as one object: printed as text, with --json as JSON, or handed over to a parent process."""

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any, TextIO

from manyheads.runner.errors import Code, ConfigurationError, ExitCode, Interrupted, Kind, RunFailed

REPLY_TO = "MANYHEADS_REPLY_TO"  # an environment variable: the file in which a parent process wants the reply


@dataclass(frozen=True)
class Answer:
    """The answer of a command. Each command's ``run`` returns its own kind, whose fields are what programs get."""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        return ExitCode.DONE

    def show(self) -> None:
        """Print it for people."""


@dataclass(frozen=True)
class Problem:
    """Why a command failed, or was refused."""

    code: Annotated[Kind | Code, "what kind of error it is; does not change with the wording of the message"]
    message: Annotated[str, "the sentences that people read"]
    key: Annotated[str | None, "the key or flag that is wrong, such as trainer.epochs"] = None
    value: Annotated[Any, "what it was set to"] = None
    allowed: Annotated[tuple[Any, ...], "the values that may be chosen, or a description of them; may be empty"] = ()
    rank: Annotated[int | None, "the rank that failed first"] = None
    node: Annotated[str | None, "the machine on which it failed, in a run on several"] = None
    traceback: Annotated[str | None, "of the rank or of this process, if there is one"] = None
    kept: Annotated[str | None, "if it was interrupted, what is left of the work and how to continue"] = None

    @classmethod
    def of(cls, error: ConfigurationError | RunFailed | Interrupted | KeyboardInterrupt) -> "Problem":
        """The problem that one of this project's exceptions reports."""
        if isinstance(error, RunFailed):
            failure = error.failure
            return cls(
                failure.kind, str(error), rank=failure.rank, node=failure.node, traceback=failure.traceback or None
            )
        if isinstance(error, (Interrupted, KeyboardInterrupt)):
            kept = "\n".join(getattr(error, "__notes__", ()))  # which ``keeping`` has added
            code = getattr(error, "code", Code.INTERRUPTED)
            return cls(code, str(error) or "interrupted by SIGINT", kept=kept or None)
        return cls(error.code, str(error), error.key, error.value, error.allowed)


@dataclass(frozen=True)
class Reply:
    """The output of a command with --json."""

    manyheads: Annotated[str, "the version that answers"]
    command: str
    exit_code: Annotated[
        int, "0 done, 1 failed, 2 refused, 3 no, 4 undecided, 5 expired, 6 spent, 130, 143 interrupted"
    ]
    result: Annotated[Any, "the answer; null if there is none"]
    error: Annotated[Problem | None, "null unless it failed, was refused or was interrupted"]


def reserve_stdout() -> TextIO:
    """The standard output, for one object; everything else that is printed there goes to stderr from now on.

    That holds for child processes and libraries as well, since the file descriptor itself is replaced.
    """
    sys.stdout.flush()
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return kept
