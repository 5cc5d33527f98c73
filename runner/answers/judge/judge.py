"""``manyheads judge`` for run configs: judge a change, or repeat somebody else's judgement on this machine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

from manyheads.runner.answers.judge.answer import Judged
from manyheads.runner.answers.judge.arms import Arms, compose_arms, recorded_arms
from manyheads.runner.answers.judge.config_judgement import ConfigJudgement
from manyheads.runner.answers.judge.config_question import ConfigQuestion
from manyheads.runner.answers.judge.decide import decide
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.recorded import RecordedJudgement
from manyheads.runner.answers.judge.revision import Revision
from manyheads.runner.answers.judge.terms import JudgementTerms, aims_of
from manyheads.runner.answers.measure.arm_configs import tolerances_of
from manyheads.runner.answers.measure.rounds import new_draw
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.config.fresh_folder import named_folder
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.run_folder import SWEEP_DIR


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
    return _decide(question, terms, named_folder(overrides, SWEEP_DIR), revision)


def again(recorded: RecordedJudgement, overrides: Sequence[str], terms: JudgementTerms) -> Judged:
    """Repeat a judgement on this machine, with its aims, error rate and test.

    ``overrides``: further ones, for both arms. Its configs are checked like any that somebody else wrote: raises
    ConfigurationError for classes that are not trusted, and as ``judge`` does.
    """
    path, asked, is_own = recorded.path, cast(ConfigQuestion, recorded.question), recorded.is_own
    if asked.revision is not None:
        its = "" if is_own else ", with those of its overrides that you trust"
        raise ConfigurationError(
            f"{printable(path)} judges code: base ran commit {printable(asked.revision)}. In a clone of that "
            f"repository, run{its}: {invocation.command('judge', *asked.arguments_again(path, is_own=is_own))}"
        )
    words = [word for word in overrides if not word.startswith(SWEEP_DIR)]
    arms = recorded_arms(asked, words, path, is_own=is_own)
    terms = replace(
        terms, on=asked.on, allow_changed_numerics=False, least=asked.least, alpha=asked.alpha, test=asked.test
    )
    question = _question(arms, [*asked.overrides, *words], asked.change, terms)
    return _decide(question, terms, named_folder(overrides, SWEEP_DIR))


def _question(
    arms: Arms, overrides: Sequence[str], change: str, terms: JudgementTerms, revision: Revision | None = None
) -> ConfigQuestion:
    arms.refuse_unmeasured(aims_of(terms.asked))
    return ConfigQuestion(
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
    question: ConfigQuestion, terms: JudgementTerms, named: Path | None, revision: Revision | None = None
) -> Judged:
    @contextmanager
    def judging(folder: Path, asked: Question) -> Iterator[ConfigJudgement]:
        with nullcontext() if revision is None else revision.files() as code:
            yield ConfigJudgement(Runs(folder, code), cast(ConfigQuestion, asked), terms.seconds)

    return decide(question, terms, named, judging)
