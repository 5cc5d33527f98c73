"""Decides a question in its folder: alone there, within its session, and continued if it was asked before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from manyheads.runner.answers.judge.answer import Judged
from manyheads.runner.answers.judge.judgement import BudgetTooSmall, Judgement
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.recorded import FILE
from manyheads.runner.answers.judge.session import JudgementSession
from manyheads.runner.answers.judge.terms import JudgementTerms
from manyheads.runner.answers.measure.recording import Recording
from manyheads.runner.errors import BudgetSpent, ConfigurationError, printable
from manyheads.runner.machine.process import handled_by, interrupt
from manyheads.runner.run.files import exclusive, in_turn, make_folder
from manyheads.runner.run.progress import keeping, say
from manyheads.runner.run.run_folder import RunFolder

JUDGEMENTS = Path("outputs") / "judgements"
LOCK = ".asked"
MOST_SHOWN = 12


def decide(
    question: Question,
    terms: JudgementTerms,
    named: Path | None,
    judgement_of: Callable[[Path, Question], Judgement],
) -> Judged:
    """Decide a new or continued question in the ``named`` folder, by default in its own under JUDGEMENTS.

    ``judgement_of``: the judgement in a folder. Raises as ``Judgement.decide``.
    """
    from manyheads.launchers.companions import refuse_start  # the rest needs no launchers

    _show_differences(question.differences(), question.changed_files())
    runs = Recording((folder := named or JUDGEMENTS / question.id).resolve())
    refuse_start(runs.folder)
    make_folder(runs.folder)
    session = None if terms.session is None else JudgementSession(terms.session, is_rate=terms.rate)
    with in_turn(runs.folder / LOCK):
        question, asked = _asked(runs, question, session, terms)
    if asked.id != question.id:
        raise ConfigurationError(f"{folder} holds the judgement of another question. Name another folder.")
    with (
        exclusive(runs.ledger.path, of=folder),
        keeping("judge", f"the runs that have ended are kept in {RunFolder(folder)}; the same command continues"),
        handled_by(interrupt),
    ):
        judgement = judgement_of(runs.folder, asked)
        try:
            claims, stopped = judgement.decide(), None
        except BudgetSpent as reason:
            claims, stopped = judgement.stopped(), str(reason)
        except BudgetTooSmall:
            if session is not None and asked is question:  # begun by this call
                runs.discard()
                session.withdraw(asked.draw)
                say(f"the session {terms.session} does not count this change")
            raise
    if session is not None:
        session.answer(asked.draw, claims.verdict)
    return Judged.of(runs.folder / FILE, asked, claims, stopped=stopped)


def _asked(
    runs: Recording, question: Question, session: JudgementSession | None, terms: JudgementTerms
) -> tuple[Question, Question]:
    """The question with its error rate in the session, and the one in the ledger, which is created if necessary."""
    before = Question.of(runs.ledger.question()) if runs.ledger.exists() else None
    if session is not None:
        number, alpha = session.ask((before or question).draw, question.change, terms.alpha)
        question = replace(question, alpha=alpha)
        say(f"change {number} of the session {terms.session}: its error rate is {alpha:.2g}")
    if before is None:
        runs.ledger.create(asdict(question))
    return question, before or question


def _show_differences(differences: Mapping[str, Sequence[Any]], files: Sequence[str]) -> None:
    lines = [
        *(
            f"{key}: {' -> '.join('null' if value is None else str(value) for value in values)}"
            for key, values in differences.items()
        ),
        *(f"{name}: not as in the revision" for name in files),
    ]
    print("What differs:" if lines else "Both arms are the same.")
    for line in lines[:MOST_SHOWN]:
        print(printable(f"  {line}"))
    if len(lines) > MOST_SHOWN:
        print(f"  and {len(lines) - MOST_SHOWN} more")
