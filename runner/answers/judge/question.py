"""The question of a judgement, fixed before the first run: both configs, the error rate, the draw."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from manyheads.runner.answers.judge.terms import Aim, aims_of
from manyheads.runner.answers.measure.arm_configs import ArmConfigs, examined, timed, unobserved
from manyheads.runner.answers.measure.rounds import seed
from manyheads.runner.answers.measure.rows import BASE, FLOOR, ROUND, TRIAL
from manyheads.runner.answers.measure.sequential import TESTS
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import Section
from manyheads.runner.run.seal import digest_of

FORMAT = 3
FLOOR_ROUNDS = 5
LARGEST = 1e300  # of a number in a question


@dataclass(frozen=True)
class Question:
    """What a judgement asks; the first line of its ledger.

    ``overrides``, ``change``, ``on``: as typed.
    ``least``: the smallest gain worth having in the first aim, as a fraction of the seconds or in the metric's unit.
    ``alpha``: the error rate over all aims.
    ``test``: a key of TESTS.
    ``base``, ``changed``: the run configs of the arms.
    ``tolerances``: see ArmConfigs.
    ``code``: a digest of the code of both arms.
    ``draw``: the random number that decides coins and seeds.
    ``revision``: the commit of the user's repository that base runs; None for the working tree.
    ``files``: the files of the working tree that differ from it.
    """

    overrides: list[str]
    change: str
    on: str
    least: float
    alpha: float
    test: str
    tolerances: list[float]
    code: str
    draw: str
    base: Section
    changed: Section
    revision: str | None = None
    files: list[str] = field(default_factory=list)
    format: int = FORMAT

    def to_json(self) -> Mapping[str, Any]:
        """The question as plain values: the first line of the ledger."""
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Question":
        """The question in JSON that anyone may have written. Raises ConfigurationError if it is malformed."""
        try:
            question = cls(**content)
        except TypeError:
            raise ConfigurationError("it is not a judgement: its question has other keys.") from None
        if question.format != FORMAT:
            raise ConfigurationError(f"it has format {question.format!r}, but this version reads {FORMAT}.")
        if not question._is_sound():
            raise ConfigurationError("it is not a judgement: a value of its question has another type.")
        aims_of(question.on)
        return question

    def _is_sound(self) -> bool:
        lists = self.tolerances, self.overrides, self.files
        if not all(isinstance(value, list) for value in lists):
            return False
        numbers = (self.least, self.alpha, *self.tolerances)
        texts = (self.change, self.on, self.test, self.code, self.draw, "" if self.revision is None else self.revision)
        return (
            all(type(value) in (int, float) and abs(value) < LARGEST for value in numbers)
            and all(isinstance(value, str) for value in (*texts, *self.overrides, *self.files))
            and isinstance(self.base, dict)
            and isinstance(self.changed, dict)
            and len(self.tolerances) == 3
            and self.test in TESTS
            and 0 < self.alpha < 1
        )

    @property
    def id(self) -> str:
        """A digest by which a question is recognized when it is asked again."""
        asked = {**asdict(self), "draw": None, "overrides": None, "change": None}
        return digest_of(asked)[:12]

    @property
    def aims(self) -> tuple[Aim, ...]:
        """The aims: the first should improve, and none get worse."""
        return aims_of(self.on)

    @property
    def is_about_speed(self) -> bool:
        """Whether both arms take the same steps, whose seconds are compared."""
        return self.aims[0].is_speed

    @property
    def configs(self) -> ArmConfigs:
        """The run configs of both arms, to compare their updates."""
        return ArmConfigs(self.base, self.changed, self.tolerances, changes_code=self.revision is not None)

    @property
    def alpha_each(self) -> float:
        """The error rate of each aim."""
        return self.alpha / len(self.aims)

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
            return {**unobserved(config), "seed": seed(self.draw, purpose, round, turn)}
        return examined(config, purpose)
