"""The question whether one run config is better than another, or whether code is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.answers.judge.config_faults import config_faults
from manyheads.runner.answers.judge.question import ArmComparison, Question, are_numbers, are_texts
from manyheads.runner.answers.judge.terms import FOUND, VERSIONS
from manyheads.runner.answers.measure.arm_configs import ArmConfigs, examined, timed, unobserved
from manyheads.runner.answers.measure.evidence import Evidence
from manyheads.runner.answers.measure.numerics import EQUAL, SAME_BITS, class_of
from manyheads.runner.answers.measure.rounds import seed
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, FLOOR, ROUND, STEPS, TRIAL, RunRow
from manyheads.runner.errors import printable
from manyheads.runner.option.tree import Section


@dataclass(frozen=True)
class ConfigQuestion(Question):
    """Whether a changed run config is better than base's.

    ``overrides``: as typed.
    ``base``, ``changed``: the run configs of the arms.
    ``tolerances``: see ArmConfigs.
    ``code``: a digest of the code of both arms.
    ``revision``: the commit of the user's repository that base runs; None for the working tree.
    ``files``: the files of the working tree that differ from it.
    """

    overrides: list[str]
    tolerances: list[float]
    code: str
    base: Section
    changed: Section
    revision: str | None = None
    files: list[str] = field(default_factory=list)

    asker: ClassVar[str] = "manyheads.runner.answers.judge.judge"
    words: ClassVar[tuple[str, ...]] = (*Question.words, "overrides")

    def is_sound(self) -> bool:
        lists = self.tolerances, self.overrides, self.files
        return (
            super().is_sound()
            and all(isinstance(value, list) for value in lists)
            and are_numbers(self.tolerances)
            and are_texts((self.code, self.revision or "", *self.overrides, *self.files))
            and isinstance(self.base, dict)
            and isinstance(self.changed, dict)
            and len(self.tolerances) == 3
        )

    @property
    def is_about_speed(self) -> bool:
        """Whether both arms take the same steps, whose seconds are compared."""
        return self.aims[0].is_speed

    @property
    def configs(self) -> ArmConfigs:
        """The run configs of both arms, to compare their updates."""
        return ArmConfigs(self.base, self.changed, self.tolerances, changes_code=self.revision is not None)

    def config(
        self, purpose: str, arm: str, *, round: int = 0, turn: int = 0, updates: int = 0, per_epoch: int = 1
    ) -> Section:
        """The run config of a run with this purpose.

        ``round``, ``turn``: they decide its seed; ``updates``: how many are timed; ``per_epoch``: the updates in one
        of the arm's epochs.
        """
        config = self.base if arm == BASE else self.changed
        if self.is_about_speed and purpose in (TRIAL, FLOOR, ROUND):
            return timed(config, updates=updates, per_epoch=per_epoch)
        if not self.is_about_speed and purpose in (FLOOR, ROUND):
            turn = 0 if self.shares_seed(purpose) else turn
            return {**unobserved(config), "seed": seed(self.draw, purpose, round, turn)}
        return examined(config, purpose)

    def refusals(self, rows: Sequence[RunRow]) -> tuple[str, ...]:
        evidence = self.evidence(rows)
        if self.is_about_speed:
            return (*evidence.refusals(), *_of_pace(evidence))
        return (*evidence.refusals(), *_of_samples(evidence), *_of_versions(self, rows))

    def evidence(self, rows: Sequence[RunRow]) -> Evidence:
        """The evidence on both arms in the ledger's rows."""
        return Evidence(self.configs, rows, needs_same_steps=self.is_about_speed)

    def comparison(self, rows: Sequence[RunRow]) -> ArmComparison:
        evidence = self.evidence(rows)
        numerics = evidence.numerics
        exact = None if numerics is None or evidence.exact is EQUAL else evidence.exact
        return ArmComparison(evidence.failure, numerics, exact)

    def faults(self, rows: Sequence[RunRow]) -> Iterator[str]:
        return config_faults(self, rows)

    def differences(self) -> Mapping[str, Sequence[Any]]:
        return self.configs.differences()

    @property
    def heading(self) -> str:
        return self.change or f"the working tree against {(self.revision or '')[:10]}"

    def changed_files(self) -> Sequence[str]:
        return self.files

    def arguments_again(self, path: Path, *, is_own: bool) -> list[object]:
        if self.revision is None:
            return super().arguments_again(path, is_own=is_own)
        return [
            *(self.overrides if is_own else ()),
            "--code",
            str(self.revision),
            *map(printable, self.term_arguments()),
        ]

    def arguments(self) -> list[str]:
        asked = ["--change", self.change] if self.change else ["--code", self.revision or ""]
        return [*self.overrides, *asked, *self.term_arguments()]


def _of_samples(evidence: Evidence) -> Iterator[str]:
    """Other training samples, although the change asks for no other data."""
    facts, configs = evidence.facts(), evidence.configs
    if not {BASE, CHANGE} <= facts.keys() or facts[CHANGE]["train"] == facts[BASE]["train"]:
        return
    if not configs.changes_code and not any(key.startswith("data.") for key in configs.differences()):
        yield (
            "the change trains on other samples than base, although it changes no key of data. (A data set with "
            "its own random generator must seed it.)"
        )


def _of_versions(question: ConfigQuestion, rows: Sequence[RunRow]) -> Iterator[str]:
    """Runs that measured an aim by another definition than the first one did."""
    trained = [row for row in rows if row.state == COMPLETED and FOUND in row.findings]
    for aim in question.aims:
        versions = [row.findings.get(VERSIONS, {}).get(aim.text, "1") for row in trained]
        for row, version in zip(trained, versions, strict=True):
            if version != versions[0]:
                yield (
                    f"{aim.text} has version {version} of its definition in run {row.number}, and version "
                    f"{versions[0]} in run {trained[0].number}"
                )
                break


def _of_pace(evidence: Evidence) -> Iterator[str]:
    """Timed runs that took another number of samples or, with bit-identical steps, ended with other weights."""
    floor, steps = evidence.completed(FLOOR), evidence.completed(STEPS, CHANGE)
    timed = sorted([*floor, *evidence.completed(ROUND)], key=lambda row: row.number)
    is_exact = bool(steps) and class_of(steps[0].findings, evidence.tolerances, None).name == SAME_BITS
    of_base = {row.findings["weights_sha256"] for row in floor}
    for row in timed:
        if row.findings["samples"] != timed[0].findings["samples"]:
            yield (
                f"run {row.number} took {row.findings['samples']} samples in its updates, run {timed[0].number} "
                f"{timed[0].findings['samples']}"
            )
        if is_exact and len(of_base) == 1 and row.findings["weights_sha256"] not in of_base:
            yield f"run {row.number} has other weights than base after its updates, although their first steps agree"
