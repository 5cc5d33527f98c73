"""``manyheads judge``: judge a change, check a judgement, or repeat somebody else's on this machine."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.runner.answers.judge.answer import CheckedJudgement, Judged
from manyheads.runner.answers.judge.arms import Arms, compose_arms, recorded_arms
from manyheads.runner.answers.judge.check_judgement import faults, read
from manyheads.runner.answers.judge.judgement import FILE, BudgetTooSmall, Judgement
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.revision import Revision
from manyheads.runner.answers.judge.session import JudgementSession
from manyheads.runner.answers.judge.terms import JudgementTerms, aims_of
from manyheads.runner.answers.measure.arm_configs import tolerances_of
from manyheads.runner.answers.measure.rounds import new_draw
from manyheads.runner.answers.measure.rows import RunRow, is_sealed
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.config.fresh_folder import SWEEP_DIR, named_folder
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import handled_by, interrupt
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import exclusive, in_turn, make_folder
from manyheads.runner.run.progress import keeping, say
from manyheads.runner.run.run_folder import RunFolder

JUDGEMENTS = Path("outputs") / "judgements"
LOCK = ".asked"
MOST_SHOWN = 12


def judge(
    overrides: Sequence[str],
    terms: JudgementTerms,
    *,
    change: str | None,
    code: str | None = None,
    config_dir: str | None = None,
) -> Judged:
    """Judge whether a change is better than base. The same question again continues the same judgement.

    ``overrides``: base's, as for train. ``change``: the overrides that it adds, in one string. ``code``: in its place,
    a revision of the user's repository, which base runs, while the change runs the working tree.

    Raises ConfigurationError if the question is refused, RunFailed if base fails, and Interrupted.
    """
    words = [word for word in overrides if not word.startswith(SWEEP_DIR)]
    if (change is None) == (code is None):
        raise ConfigurationError(
            "Name the change: --change trainer.channels_last=true, or --code HEAD.", key="--change"
        )
    arms = compose_arms(words, change, config_dir=config_dir)
    revision = None if code is None else Revision.named(code)
    question = _question(arms, words, change or "", terms, revision)
    return _decide(question, arms, terms, named_folder(overrides, SWEEP_DIR), revision)


def again(path: Path, overrides: Sequence[str], terms: JudgementTerms) -> Judged:
    """Repeat a judgement on this machine, with its aims, error rate and test.

    ``path``: its file or folder. ``overrides``: further ones, for both arms. Its configs are checked like any that
    somebody else wrote: raises ConfigurationError for classes that are not trusted, and as ``judge`` does.
    """
    path = _file_of(path)
    content, asked, _ = _read(path)
    is_own = is_sealed(content["lines"])
    if asked.revision is not None:
        its = "" if is_own else ", with those of its overrides that you trust"
        raise ConfigurationError(
            f"{printable(path)} judges code: base ran commit {printable(asked.revision)}. In a clone of that "
            f"repository, run{its}: {invocation.command('judge', *_words_of_code(asked, is_own=is_own))}"
        )
    words = [word for word in overrides if not word.startswith(SWEEP_DIR)]
    arms = recorded_arms(asked, words, path, is_own=is_own)
    terms = replace(
        terms, on=asked.on, allow_changed_numerics=False, least=asked.least, alpha=asked.alpha, test=asked.test
    )
    question = _question(arms, [*asked.overrides, *words], asked.change, terms)
    return _decide(question, arms, terms, named_folder(overrides, SWEEP_DIR))


def check(path: Path) -> CheckedJudgement:
    """Whether a judgement's rows are consistent and its claims follow from them. Runs nothing.

    ``path``: its file or folder. Raises ConfigurationError if it cannot be read.
    """
    path = _file_of(path)
    content, question, rows = _read(path)
    try:
        wrong = faults(content)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    is_own = is_sealed(content["lines"])
    words = ["--again", path] if question.revision is None else _words_of_code(question, is_own=is_own)
    return CheckedJudgement(path, len(rows), wrong, is_own, invocation.command("judge", *words))


def _words_of_code(question: Question, *, is_own: bool) -> list[str]:
    """The arguments that repeat a question about code, without somebody else's overrides: typed ones are trusted."""
    return [*(question.overrides if is_own else ()), "--code", str(question.revision)]


def _file_of(path: Path) -> Path:
    """The file of a judgement, which may be named by its folder."""
    return path / FILE if path.is_dir() else path


def _read(path: Path) -> tuple[Mapping[str, Any], Question, list[RunRow]]:
    try:
        content = read_json(path)
        return content, *read(content)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}.") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _question(
    arms: Arms, overrides: Sequence[str], change: str, terms: JudgementTerms, revision: Revision | None = None
) -> Question:
    arms.refuse_unmeasured(aims_of(terms.asked))
    return Question(
        overrides=[*overrides],
        change=change,
        on=terms.asked,
        least=terms.least_gain,
        alpha=terms.alpha,
        test=terms.name_of_test,
        tolerances=tolerances_of(arms.base, arms.change),
        code=arms.code(),
        draw=new_draw(),
        base=dict(arms.base.written),
        changed=dict(arms.change.written),
        revision=None if revision is None else revision.commit,
        files=[] if revision is None else revision.changed_files(),
    )


def _decide(
    question: Question, arms: Arms, terms: JudgementTerms, named: Path | None, revision: Revision | None = None
) -> Judged:
    """Decide a new or continued question in the ``named`` folder, by default in its own under JUDGEMENTS."""
    _show_differences(arms, question.files)
    folder = named or JUDGEMENTS / question.id
    make_folder(folder.resolve())
    runs = Runs(folder.resolve())
    session = None if terms.session is None else JudgementSession(terms.session, is_rate=terms.rate)
    with in_turn(folder.resolve() / LOCK):
        question, asked = _asked(runs, question, session, terms)
    if asked.id != question.id:
        raise ConfigurationError(f"{folder} holds the judgement of another question. Name another folder.")
    code = nullcontext() if revision is None else revision.files()
    kept = f"the runs that have ended are kept in {RunFolder(folder)}; the same command continues"
    with exclusive(runs.ledger.path, of=folder), keeping("judge", kept), handled_by(interrupt), code as base:
        try:
            claims = Judgement(Runs(runs.folder, base), asked, terms.seconds).decide()
        except BudgetTooSmall:
            if session is not None and asked is question:  # begun by this call
                runs.discard()
                session.withdraw(asked.draw)
                say(f"the session {terms.session} does not count this change")
            raise
    if session is not None:
        session.answer(asked.draw, claims.verdict)
    return Judged.of(runs.folder / FILE, asked, claims)


def _asked(
    runs: Runs, question: Question, session: JudgementSession | None, terms: JudgementTerms
) -> tuple[Question, Question]:
    """The question with its error rate in the session, and the one in the ledger, which is created if necessary."""
    before = Question.of(runs.ledger.question()) if runs.ledger.exists() else None
    if session is not None:
        number, alpha = session.ask((before or question).draw, question.change, terms.alpha)
        question = replace(question, alpha=alpha)
        say(f"change {number} of the session {terms.session}: its error rate is {alpha:.2g}")
    if before is None:
        runs.ledger.create(question.to_json())
    return question, before or question


def _show_differences(arms: Arms, files: Sequence[str]) -> None:
    lines = [
        f"{key}: {' -> '.join('null' if value is None else str(value) for value in values)}"
        for key, values in arms.differences().items()
    ]
    lines += [f"{name}: not as in the revision" for name in files]
    print("What differs:" if lines else "The configs are the same.")
    for line in lines[:MOST_SHOWN]:
        print(printable(f"  {line}"))
    if len(lines) > MOST_SHOWN:
        print(f"  and {len(lines) - MOST_SHOWN} more")
