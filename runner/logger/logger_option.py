"""Declarations of a logger."""

from typing import ClassVar

from manyheads.runner.option.locate import missing
from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import KeyKind, choice, text


class LoggerOption(Option):
    """Declares an entry of ``logger``. ``publishes``: whether it is a Tracker, which runs outside the ranks.

    ``settings``: files that its client would read from the working directory.
    """

    group = "logger"
    publishes: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()


class TrackerOption(LoggerOption):
    """Declares a tracker. ``package``: the package that it needs, which the extra of the same name installs."""

    publishes = True
    package: ClassVar[str] = ""
    rules: ClassVar = {"checkpoint": choice("none", "best", "last")}

    def unavailable(self) -> str | None:
        return missing(self.package, extra=self.package) if self.package else None


# Run folders are published, so credentials come from the environment or from the tracker's own login.
ADDRESS = text(
    "an address without user and password, which belong in the environment",
    "(?!.*://[^/]*@).+",
    lambda v: _is_address(v),
).of_kind(KeyKind.PLACE)
NAME = text("a name without a slash", "[^/]+")


def _is_address(value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    authority = value.partition("://")[2].partition("/")[0]
    return "@" not in authority
