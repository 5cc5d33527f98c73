"""``manyheads judge --command``: judge any command, or repeat such a judgement."""

import argparse
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, cast

from manyheads.runner.answers.judge.answer import Judged
from manyheads.runner.answers.judge.claims import UNDECIDED
from manyheads.runner.answers.judge.command.arm_runs import ArmFiles, ArmRuns
from manyheads.runner.answers.judge.command.command_question import CommandQuestion
from manyheads.runner.answers.judge.command.command_terms import CommandTerms
from manyheads.runner.answers.judge.command.trees import Project, changed, fingerprints
from manyheads.runner.answers.judge.committed_files import named_commit, write_commit
from manyheads.runner.answers.judge.decide import JUDGEMENTS, decide
from manyheads.runner.answers.judge.judgement import Judgement
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.recorded import RecordedJudgement
from manyheads.runner.answers.judge.terms import JudgementTerms
from manyheads.runner.answers.measure.rounds import new_draw
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, FAILED, TRIAL, RunRow
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.option.rules import seconds
from manyheads.runner.provenance.git import entries
from manyheads.runner.run import scratch
from manyheads.runner.run.run_folder import SWEEP_DIR

HANGS = 10.0  # times base's seconds, after which a run counts as hanging
SHORTEST = 5.0  # seconds that every run may take


@dataclass(frozen=True)
class CommandJudgement(Judgement):
    """A judgement of two commands. ``timeout``: seconds that a run may take until one of base has ended."""

    runs: ArmRuns
    question: CommandQuestion
    timeout: float

    def examine(self) -> None:
        """Run base once, whose seconds say what hangs, and the change once."""
        self.runs.end_leftovers()
        for arm in (BASE, CHANGE):
            tried = [row for row in self.runs.ledger.rows() if (row.purpose, row.arm) == (TRIAL, arm)]
            is_over = any(row.state == COMPLETED or (row.state == FAILED and arm == CHANGE) for row in tried)
            if not is_over and self.claims().verdict == UNDECIDED:
                self.run(TRIAL, arm)

    def examine_again(self) -> None:
        """Nothing: its files are copies, and others make it another question."""

    def run(self, purpose: str, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        return self.runs.start(purpose, arm, round, turn, timeout=self._limit())

    def _limit(self) -> float:
        """The seconds that the next run may take."""
        rows = [row for row in self.runs.ledger.rows() if row.arm == BASE and row.state == COMPLETED]
        return max(SHORTEST, HANGS * median(row.findings["seconds"] for row in rows)) if rows else self.timeout


def judge_command(arguments: argparse.Namespace) -> Judged:
    """Judge the commands that the flags name. Raises ConfigurationError, RunFailed and Interrupted."""
    for word in arguments.overrides:
        if not word.startswith(SWEEP_DIR):
            raise ConfigurationError(
                f"{word}: --command judges a command, which has no overrides. Quote the command, or leave it out.",
                key="--command",
                value=word,
            )
    if arguments.change is not None:
        raise ConfigurationError(
            "--change is about configs. Name the changed command with --against.",
            key="--change",
            value=arguments.change,
        )
    terms = CommandTerms(**{field.name: getattr(arguments, field.name) for field in fields(CommandTerms)})
    return _judged(terms, _named_folder(arguments.overrides))


def again(recorded: RecordedJudgement, overrides: Sequence[str], terms: JudgementTerms) -> Judged:
    """Repeat a judgement in the working directory. Raises ConfigurationError for somebody else's command."""
    asked = cast(CommandQuestion, recorded.question)
    if not recorded.is_own:
        raise ConfigurationError(
            f"{printable(recorded.path)} names somebody else's command, which would do whatever it says. Read it; to "
            f"run it here: {invocation.command('judge', *map(printable, asked.arguments()))}"
        )
    values = {field.name: getattr(terms, field.name) for field in fields(JudgementTerms)}
    values |= {name: getattr(asked, name) for name in ("on", "least", "alpha", "test")} | asked.flags()
    folder = _named_folder(overrides) or JUDGEMENTS / f"again-{secrets.token_hex(4)}"
    return _judged(CommandTerms(**values), folder)


def _named_folder(overrides: Sequence[str]) -> Path | None:
    """The folder that the overrides name, the last of several."""
    named = [word.removeprefix(SWEEP_DIR) for word in overrides if word.startswith(SWEEP_DIR)]
    return Path(named[-1]) if named else None


def _judged(terms: CommandTerms, named: Path | None) -> Judged:
    project = Project.around(Path.cwd())
    frozen, shared = _paths("--frozen", terms.frozen, project), _paths("--share", terms.share, project)
    commit = None if terms.code is None else named_commit(terms.code)[1]
    without = [path.resolve() for path in (terms.session, named) if path is not None]
    with scratch.folder() as folder:
        base = change = folder / secrets.token_hex(4)
        digest, differing = project.write_working_tree(change, without=without), list[str]()
        if commit is not None:
            base = folder / secrets.token_hex(4)
            write_commit(project.top, commit, entries(project.top, commit), base)
            differing = _differing(base, change)
        _refuse_missing(project, base, change, frozen, shared)
        if commit is not None and not differing:
            raise ConfigurationError(
                f"--code: no file differs from {commit[:10]}, so there is nothing to judge.", key="--code"
            )
        question = CommandQuestion(
            **_asked(terms, commit),
            within=str(project.within),
            code=[commit or digest, digest],
            files=differing,
            frozen=frozen,
            shared=shared,
        )
        ignored = [path for name in shared for path in project.ignored(name)]
        files = ArmFiles(base, change, folder, [(project.top / path, path) for path in ignored])

        def judgement_of(where: Path, asked: Question) -> CommandJudgement:
            of_commands = cast(CommandQuestion, asked)
            timeout = seconds(terms.timeout or "") or terms.seconds
            return CommandJudgement(ArmRuns(where, of_commands, files), of_commands, terms.seconds, timeout)

        return decide(question, terms, named, judgement_of)


def _asked(terms: CommandTerms, commit: str | None) -> Mapping[str, Any]:
    """The part of a question that the flags decide alone."""
    return {
        "change": terms.against or f"the working tree against {str(commit)[:10]}",
        "on": terms.on,
        "least": terms.least_gain,
        "alpha": terms.alpha,
        "test": terms.name_of_test,
        "draw": new_draw(),
        "command": terms.command,
        "against": terms.against,
        "revision": commit,
        "signs": terms.signs,
        "result": terms.result,
        "evaluator": terms.evaluator,
        "same": None if terms.tolerance is None else [*terms.tolerance],
    }


def _differing(base: Path, change: Path) -> list[str]:
    """The files whose mode or content differ."""
    one, other = (
        {name: (prints[0], prints[-1]) for name, prints in fingerprints(tree).items()} for tree in (base, change)
    )
    return changed(one, other)


def _paths(flag: str, typed: str | None, project: Project) -> list[str]:
    """Typed paths, relative to the project's folder."""
    names = [part.strip() for part in (typed or "").split(",") if part.strip()]
    paths = [Path(os.path.abspath(name)) for name in names]  # which follows no link
    for name, path in zip(names, paths, strict=True):
        if not path.is_relative_to(project.top):
            raise ConfigurationError.at(flag, name, f" is not in {project.top}.")
    return [str(path.relative_to(project.top)) for path in paths]


def _refuse_missing(project: Project, base: Path, change: Path, frozen: Sequence[str], shared: Sequence[str]) -> None:
    """Raises ConfigurationError for a path that is missing, copied anyway, or frozen and different in the arms."""
    for name in shared:
        if not (project.top / name).exists():
            raise ConfigurationError.at("--share", name, " does not exist. Name files that git ignores.")
        if any((tree / path).exists() for path in project.ignored(name) for tree in (base, change)):
            raise ConfigurationError.at("--share", name, " is copied anyway, since git does not ignore it.")
    for name in frozen:
        is_shared = any(Path(name).is_relative_to(other) for other in shared)
        if not is_shared and not (base / name).exists():
            raise ConfigurationError.at("--frozen", name, " is not among base's files. Commit it, or leave it out.")
        if differing := [path for path in _differing(base, change) if Path(path).is_relative_to(name)]:
            raise ConfigurationError.at("--frozen", name, f": {differing[0]} differs between base and the change.")
