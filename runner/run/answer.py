"""The answer of a command as one object: printed as text, with --json as JSON, or handed over to a parent process."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

from manyheads.runner.errors import (
    MISTAKES,
    BudgetSpent,
    Code,
    ConfigurationError,
    ExitCode,
    Failure,
    Interrupted,
    Kind,
    RunFailed,
)

if TYPE_CHECKING:  # few commands start others
    from manyheads.runner.run.program import Stream

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

    @classmethod
    def from_json(cls, content: object) -> "Problem | None":
        """The problem in parsed JSON; None if it lacks a code or a message."""
        if not isinstance(content, dict) or not isinstance(content.get("message"), str):
            return None
        codes: dict[str, Kind | Code] = {str(code): code for code in (*Kind, *Code)}
        if not isinstance(content.get("code"), str) or content["code"] not in codes:
            return None
        names = ("message", "key", "value", "rank", "node", "traceback", "kept")
        rest: Mapping[str, Any] = {name: content.get(name) for name in names}
        return cls(codes[content["code"]], allowed=tuple(content.get("allowed") or ()), **rest)

    def as_exception(self, exit_code: int) -> ConfigurationError | RunFailed | BudgetSpent:
        """The error of a command that ended with this code."""
        if self.code is Code.SPENT:
            spent = BudgetSpent(self.message)
            spent.__notes__ = [self.kept] if self.kept else []
            return spent
        if exit_code in (ExitCode.REFUSED, ExitCode.EXPIRED):
            mistake = MISTAKES.get(self.code, ConfigurationError)
            return mistake(self.message, key=self.key, value=self.value, allowed=self.allowed)
        kind = self.code if isinstance(self.code, Kind) else Kind.PROGRAM_FAILED
        failure = Failure(kind, rank=self.rank, exit_code=exit_code, message=self.message, node=self.node)
        return RunFailed(replace(failure, traceback=self.traceback or ""))


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


class ChildEnd(NamedTuple):
    """How a command ended. ``reply``: what it prints with --json; empty if it was killed before it answered."""

    code: int
    reply: Mapping[str, Any]

    @property
    def result(self) -> Mapping[str, Any]:
        """The command's answer; empty if there is none."""
        content = self.reply.get("result")
        return content if isinstance(content, dict) else {}

    def error(self, failure: Failure | None = None) -> ConfigurationError | RunFailed | BudgetSpent:
        """The error that ended the command. ``failure``: what its run recorded about it, if anything."""
        problem = Problem.from_json(self.reply.get("error"))
        if problem is not None:
            error = problem.as_exception(self.code)
            if isinstance(error, RunFailed):
                error = RunFailed(failure or error.failure)
                error.add_note(error.failure.traceback)  # which Python shows below the message
            return error
        if self.code == ExitCode.REFUSED:
            error = ConfigurationError("it was refused; see its output above")
        else:
            died = Failure(Kind.PROGRAM_FAILED, exit_code=self.code, message="see its output above")
            error = RunFailed(failure or died)
        error.reported = True  # it has printed all that is known
        return error


def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    on_line: Callable[[str], None] | None = None,
    stdout: "Stream" = None,
) -> ChildEnd:
    """Run a command of this project as ``Program.run`` does, and return its reply.

    The command does not print its error; that is left to the caller. Raises Interrupted after a signal, with the
    command's note on what is kept.
    """
    from manyheads.runner.run import scratch
    from manyheads.runner.run.program import Program

    with scratch.folder() as folder:
        reply_file = folder / "reply.json"
        try:
            code = Program(command, {**environment, REPLY_TO: str(reply_file)}).run(on_line=on_line, stdout=stdout)
        except Interrupted as reason:
            problem = Problem.from_json(_read(reply_file).get("error"))
            if problem is not None and problem.kept:
                reason.add_note(problem.kept)
            raise
        return ChildEnd(code, _read(reply_file))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):  # it was killed, or is an earlier version
        return {}
    return content if isinstance(content, dict) else {}
