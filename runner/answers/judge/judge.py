"""``manyheads judge`` for run configs: judge a change, or repeat somebody else's judgement on this machine."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

from manyheads.launchers.job import TRAIN
from manyheads.runner.answers.judge.answer import Judged
from manyheads.runner.answers.judge.arms import Arms, compose_arms, recorded_arms
from manyheads.runner.answers.judge.claims import UNDECIDED
from manyheads.runner.answers.judge.config_question import ConfigQuestion
from manyheads.runner.answers.judge.decide import decide
from manyheads.runner.answers.judge.judgement import Judgement
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.recorded import RecordedJudgement
from manyheads.runner.answers.judge.revision import Revision
from manyheads.runner.answers.judge.terms import FOUND, SIGNS, UNREACHED, VERSIONS, Aim, JudgementTerms, aims_of
from manyheads.runner.answers.measure import purposes
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES, tolerances_of
from manyheads.runner.answers.measure.examination import Examination
from manyheads.runner.answers.measure.rounds import new_draw, updates_of
from manyheads.runner.answers.measure.rows import BASE, FACTS, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import Purpose, Runs
from manyheads.runner.config.fresh_folder import named_folder
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.records.claims import direction
from manyheads.runner.records.load_run import Columns, read_columns
from manyheads.runner.run.json_types import ScoresJson, right
from manyheads.runner.run.run_folder import SWEEP_DIR, RunFolder
from manyheads.runner.run.score_versions import version_of

CHANGED_NUMERICS = (
    " To compare complete trainings of a change that computes something else on purpose: --on speed,<metric> "
    "--allow-changed-numerics."
)


@dataclass(frozen=True)
class ConfigJudgement(Judgement):
    """A judgement of two run configs."""

    runs: Runs
    question: ConfigQuestion

    @property
    def hint(self) -> str:
        return CHANGED_NUMERICS if self.question.is_about_speed else ""

    def examine(self) -> None:
        self.examination.run()
        if self.claims().verdict == UNDECIDED and self.question.is_about_speed and not self.completed(TRIAL, BASE):
            self.run(TRIAL, BASE)

    def examine_again(self) -> None:
        self.examination.start(purposes.facts(), BASE)  # the data may have changed since

    @property
    def examination(self) -> Examination:
        """The runs that show whether the arms can be compared."""
        return Examination(self.runs, self.question.configs, needs_same_steps=self.question.is_about_speed)

    def run(self, purpose: str, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        if purpose != TRIAL and not self.question.is_about_speed:
            config = self.question.config(purpose, arm, round=round, turn=turn)
            return self.runs.start(config, training(purpose, self.question.aims), arm=arm, round=round, turn=turn)
        updates = TRIAL_UPDATES if purpose == TRIAL else updates_of(self.runs.ledger.rows())
        per_epoch = next((row.findings["per_epoch"] for row in self.completed(FACTS, arm)), 1)
        config = self.question.config(purpose, arm, updates=updates, per_epoch=per_epoch)
        return self.runs.start(config, purposes.pace(purpose, updates), arm=arm, round=round, turn=turn)


def training(name: str, aims: Sequence[Aim]) -> Purpose:
    """To train to the end, for metrics of the last evaluation and the seconds until targets were reached.

    Reading the result raises ConfigurationError if a metric is not finite.
    """

    def read(folder: RunFolder, result: Mapping[str, Any]) -> Mapping[str, Any]:
        epochs = read_columns(folder.epochs)
        signs, values, versions, unreached = {}, {}, {}, []
        for aim in aims:
            metric = aim.metric
            signs[aim.text] = 1 if not aim.is_training and direction(result, metric) == "max" else -1
            value: float | None
            if aim.is_training:
                value = sum(epochs["train_seconds"])
            elif aim.target is None or result["metrics"][metric] is None:
                value = result["metrics"][metric]
            elif (value := _seconds_to(aim.target[1], epochs, metric, sign=signs[aim.text])) is None:
                unreached.append(aim.text)
                value = UNREACHED * sum(epochs["train_seconds"])
            if value is None or not math.isfinite(value):
                what = "has no value" if value is None else f"is {value}"
                raise ConfigurationError(f"{metric} {what} after training. Set --on to another metric.", key="--on")
            values[aim.text] = value
            versions[aim.text] = version_of(right(result.get("scores") or {}, ScoresJson), metric)
        return {
            FOUND: values,
            SIGNS: signs,
            VERSIONS: versions,
            "unreached": unreached,
            "train_seconds": result["train_seconds"],
            "weights_sha256": result["weights_sha256"],
        }

    return Purpose(name, TRAIN, lambda folder: None, read)


def _seconds_to(target: float, epochs: Columns, metric: str, *, sign: int) -> float | None:
    """Seconds of training after which an evaluation first reached the target; None if none did."""
    reached = [sign * value >= sign * target for value in epochs.get(metric, ())]
    total = [*accumulate(epochs["train_seconds"])]
    return total[reached.index(True)] if any(reached) else None


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
    with nullcontext() if revision is None else revision.files() as code:

        def judgement_of(folder: Path, asked: Question) -> ConfigJudgement:
            return ConfigJudgement(Runs(folder, code), cast(ConfigQuestion, asked), terms.seconds)

        return decide(question, terms, named, judgement_of)
