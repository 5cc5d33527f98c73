"""Runs commands on private copies of their files, one after another, and records what they give."""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from platform import node
from typing import Any

from manyheads.runner.answers.judge.command.command_question import CHANGED, SAME, SEED, CommandQuestion
from manyheads.runner.answers.judge.command.numbers import finite, last_words, printed, text_of, written
from manyheads.runner.answers.judge.command.trees import changed, fingerprints
from manyheads.runner.answers.judge.terms import CLOCK, FOUND, SIGNS
from manyheads.runner.answers.measure.pace_task import seconds_between
from manyheads.runner.answers.measure.recording import Recording
from manyheads.runner.answers.measure.rows import BASE, COMPLETED, RunRow
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.run.files import make_folder, remove
from manyheads.runner.run.program import PIPE, Program, stop
from manyheads.runner.run.progress import say
from manyheads.runner.run.seal import digest_of

SUPERVISOR = Path(__file__).with_name("supervisor.py")
MARK = "MANYHEADS_JUDGED"  # a variable by which processes that outlived their supervisor are recognized
FOLDER = "{folder}"


@dataclass(frozen=True)
class ArmFiles:
    """The files that arms get copies of, in folders of this process.

    ``base``, ``change``: the originals; ``scratch``: where the copies are; ``shared``: pairs of a path outside and its
    name in each copy.
    """

    base: Path
    change: Path
    scratch: Path
    shared: Sequence[tuple[Path, str]]

    def of(self, arm: str) -> Path:
        """The original of an arm's files."""
        return self.base if arm == BASE else self.change


class ArmRuns(Recording):
    """The runs of commands, in ``folder``, which a ledger lists."""

    def __init__(self, folder: Path, question: CommandQuestion, files: ArmFiles):
        super().__init__(folder)
        self._question, self._files = question, files
        self._originals = {path: fingerprints(path, read=False) for path in {files.base, files.change}}
        self._mark = digest_of(["processes", question.draw])

    def start(self, purpose: str, arm: str, round: int, turn: int, *, timeout: float) -> RunRow:
        """Run an arm's command to its end, or for ``timeout`` seconds, and record its row. Raises as ``record``."""
        return self.record(
            lambda row: self._done(row, timeout),
            purpose=purpose,
            arm=arm,
            round=round,
            turn=turn,
            seed=self._question.seed(purpose, round, turn),
            signature=self._question.signature(arm),
        )

    def end_leftovers(self) -> None:
        """End the processes of runs whose supervisor was killed."""
        for folder in Path("/proc").glob("[0-9]*") if Path("/proc").is_dir() else ():
            try:
                if f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), 9)
            except (OSError, ValueError):
                continue

    def _done(self, row: RunRow, timeout: float) -> RunRow:
        question, marks, tree = self._question, self.folder / row.folder, self._files.scratch / "files"
        try:
            self._copy(self._files.of(row.arm), tree)
            frozen = fingerprints(tree, question.frozen)
            result = self._result(tree) if question.evaluator is None else None
            before = _state(result)
            report = self._supervised(question.line(row.arm), tree, marks, seed=row.seed, timeout=timeout)
            touched = changed(frozen, fingerprints(tree, question.frozen)) + self._changed_originals()
            if result is not None and _state(result) == before:
                raise ConfigurationError(f"--result: the run wrote no {result.name}", key="--result")
            if question.evaluator is None:
                numbers = self._numbers(marks, result)
            else:
                numbers = self._evaluated(question.evaluator, tree, marks / "evaluation", row.seed, timeout)
        finally:
            remove(tree)
        seconds = report["seconds"]
        values = {name: numbers[name] for name in question.signs}
        values |= {CLOCK: seconds} if CLOCK in question.on.split(",") else {}
        same = None if question.same is None else numbers[question.same[0]]
        findings = {FOUND: values, SIGNS: question.signs, SAME: same, CHANGED: touched, "seconds": seconds}
        findings |= {"marked": seconds_between(marks / "began", marks / "ended"), "outlived": report["outlived"]}
        findings |= {"mounted": report["mounted"]} if self._files.shared else {}
        if self._files.shared and not report["mounted"] and not row.number:
            say("--share: judge may not mount here, so shared files are links, through which a command could write.")
        code, ended = question.code[row.arm != BASE], time.time()
        return replace(row, state=COMPLETED, ended=ended, findings=findings, machine=digest_of(node()), code=code)

    def _changed_originals(self) -> list[str]:
        """Files that no arm has, but that one changed nevertheless."""
        kept = self._originals.items()
        return [name for path, prints in kept for name in changed(prints, fingerprints(path, read=False))]

    def _copy(self, original: Path, to: Path) -> None:
        remove(to)
        shutil.copytree(original, to, symlinks=True)

    def _result(self, tree: Path) -> Path | None:
        """The file in a tree that has the numbers; None if they are printed."""
        if self._question.result is None:
            return None
        return tree / self._question.within / self._question.result.rpartition(":")[0]

    def _numbers(self, console: Path, result: Path | None) -> dict[str, float]:
        names = self._question.names
        if result is not None:
            numbers = written(result, str(self._question.result).rpartition(":")[2], names)
            text = result.read_text(errors="replace")
            return finite(numbers, names, where=result.name, text=text, end=text[-200:])
        text = text_of(console / "console.log")
        return finite(printed(text, names), names, where="the output", text=text, end=last_words(text))

    def _evaluated(self, evaluator: str, tree: Path, marks: Path, seed: int, timeout: float) -> dict[str, float]:
        """The numbers from the evaluator, which runs in a copy of base's files that the arm never had."""
        copy = self._files.scratch / "evaluation"
        try:
            self._copy(self._files.base, copy)
            line = evaluator.replace(FOLDER, shlex.quote(str(tree / self._question.within)))
            self._supervised(line, copy, marks, seed=seed, timeout=timeout)
            return self._numbers(marks, self._result(copy))
        finally:
            remove(copy)

    def _supervised(self, line: str, tree: Path, marks: Path, *, seed: int, timeout: float) -> dict[str, Any]:
        """Run a command in a tree; its report. Raises RunFailed if it fails or takes too long, and BudgetSpent."""
        from manyheads.launchers.companions import accompanied_program  # the rest needs no launchers

        make_folder(marks)
        with accompanied_program(marks):
            report = self._report(line := line.replace(SEED, str(seed)), tree, marks, seed=seed, timeout=timeout)
        if report["timed_out"]:
            raise _failed(f"it took longer than {timeout:.3g} s")
        if report["code"] != 0:
            how = "its supervisor was killed" if report["code"] is None else f"exit code {report['code']}"
            end = last_words(text_of(marks / "console.log"))
            hint = " What git ignores, a run only has with --share." if "No such file or directory" in end else ""
            raise _failed(f"`{line}` failed: {how}.{hint} It ends with: {end}")
        return report

    def _report(self, line: str, tree: Path, marks: Path, *, seed: int, timeout: float) -> dict[str, Any]:
        """What the supervisor of a command reports once all of its processes have ended."""
        temporary = self._files.scratch / "temporary"
        make_folder(temporary)
        task = {
            "command": line,
            "folder": str(tree / self._question.within),
            "marks": str(marks),
            "environment": self._environment(seed, temporary),
            "shared": [(str(source), str(tree / name)) for source, name in self._files.shared],
            "timeout": timeout,
            "parent": os.getpid(),
        }
        process = Program([sys.executable, "-I", "-S", str(SUPERVISOR)]).start(stdin=PIPE, stdout=PIPE)
        try:
            output, _ = process.communicate(json.dumps(task).encode())
        finally:
            stop(process, seconds=0)
            self.end_leftovers()
            remove(temporary)
        return json.loads(output or b"null") or {"code": None, "timed_out": False}

    def _environment(self, seed: int, temporary: Path) -> dict[str, str]:
        """The variables of a run, which do not depend on its arm. Python imports as it does for the user."""
        variables = {**os.environ, "TMPDIR": str(temporary), "MANYHEADS_SEED": str(seed), MARK: self._mark}
        if not sys.flags.safe_path:
            variables.pop("PYTHONSAFEPATH", None)
        return variables


def _failed(message: str) -> RunFailed:
    return RunFailed(Failure(Kind.PROGRAM_FAILED, message=message))


def _state(path: Path | None) -> tuple[int, int] | None:
    """What differs once a file is written anew; None if it does not exist."""
    try:
        return None if path is None else (path.stat().st_ino, path.stat().st_ctime_ns)
    except OSError:
        return None
