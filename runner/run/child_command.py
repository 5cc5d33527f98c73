"""Runs a command of this project in a child process, and reads its reply."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
from manyheads.runner.run import scratch
from manyheads.runner.run.answer import REPLY_TO, Problem
from manyheads.runner.run.program import Program, Stream

NAMES = ("message", "key", "value", "rank", "node", "traceback", "kept")


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
        problem = problem_from_json(self.reply.get("error"))
        if problem is not None:
            error = as_exception(problem, self.code)
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
    stdout: Stream = None,
) -> ChildEnd:
    """Run a command of this project as ``Program.run`` does, and return its reply.

    The command does not print its error; that is left to the caller. Raises Interrupted after a signal, with the
    command's note on what is kept.
    """
    with scratch.folder() as folder:
        reply_file = folder / "reply.json"
        try:
            code = Program(command, {**environment, REPLY_TO: str(reply_file)}).run(on_line=on_line, stdout=stdout)
        except Interrupted as reason:
            problem = problem_from_json(_read(reply_file).get("error"))
            if problem is not None and problem.kept:
                reason.add_note(problem.kept)
            raise
        return ChildEnd(code, _read(reply_file))


def problem_from_json(content: object) -> Problem | None:
    """The problem in parsed JSON; None if it lacks a code or a message."""
    if not isinstance(content, dict) or not isinstance(content.get("message"), str):
        return None
    codes: dict[str, Kind | Code] = {str(code): code for code in (*Kind, *Code)}
    if not isinstance(content.get("code"), str) or content["code"] not in codes:
        return None
    rest: Mapping[str, Any] = {name: content.get(name) for name in NAMES}
    return Problem(codes[content["code"]], allowed=tuple(content.get("allowed") or ()), **rest)


def as_exception(problem: Problem, exit_code: int) -> ConfigurationError | RunFailed | BudgetSpent:
    """The error of a command that ended with this code."""
    if problem.code is Code.SPENT:
        spent = BudgetSpent(problem.message)
        if problem.kept:
            spent.add_note(problem.kept)
        return spent
    if exit_code in (ExitCode.REFUSED, ExitCode.EXPIRED):
        mistake = MISTAKES.get(problem.code, ConfigurationError)
        return mistake(problem.message, key=problem.key, value=problem.value, allowed=problem.allowed)
    kind = problem.code if isinstance(problem.code, Kind) else Kind.PROGRAM_FAILED
    failure = Failure(kind, rank=problem.rank, exit_code=exit_code, message=problem.message, node=problem.node)
    return RunFailed(replace(failure, traceback=problem.traceback or ""))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):  # it was killed, or is an earlier version
        return {}
    return content if isinstance(content, dict) else {}
