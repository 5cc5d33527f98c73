"""The terms of a tuning: what it may try, and how long it may take."""

from dataclasses import dataclass

from manyheads.runner.errors import not_allowed
from manyheads.runner.option.rules import seconds

ASKED, ANY = "asked", "any"


@dataclass(frozen=True)
class Terms:
    """The flags of a tuning. Raises ConfigurationError for values that are not allowed.

    ``budget``: a duration such as 10m.
    ``over``: patterns of the only keys to try, separated by commas; empty: all.
    ``fix``: patterns of keys to leave unchanged, separated by commas.
    ``within``: how much slower than the best of those measured to a decision the answer may be, as a fraction.
    ``precision``: ASKED, or ANY to try every configuration in other precisions too.
    ``allow_changed_numerics``: whether gradients may be compressed, or combined other than by averaging.
    """

    budget: str = "10m"
    over: str = ""
    fix: str = ""
    within: float = 0.03
    precision: str = ASKED
    allow_changed_numerics: bool = False

    def __post_init__(self) -> None:
        if seconds(self.budget) is None:
            raise not_allowed("--budget", self.budget, "seconds, or 90s, 30m, 8h, 2d")
        if not 0 < self.within < 1:
            raise not_allowed("--within", self.within, "a number between 0 and 1, such as 0.03")

    def patterns(self, flag: str) -> list[str]:
        """The patterns of ``flag``, "over" or "fix"."""
        text: str = getattr(self, flag)
        return [each for each in text.split(",") if each]

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return seconds(self.budget) or 0.0
