"""The limits of a budget, as its file names them."""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, as_typed, printable
from manyheads.runner.option.rules import UNITS as TIMES
from manyheads.runner.option.rules import seconds
from manyheads.runner.records.find import OUTPUTS
from manyheads.runner.run import yaml_text
from manyheads.runner.run.data_files import read_bytes

NAMED = "MANYHEADS_BUDGET"
FILE = "budget.yaml"
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGTP]?)(i?)B", re.ASCII)
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DAY = len("2026-12-31")


@dataclass(frozen=True)
class SpendingLimits:
    """``device_seconds``, ``runs``, ``disk`` in bytes, ``until`` in seconds since 1970; None: no such limit."""

    device_seconds: float | None = None
    runs: float | None = None
    disk: float | None = None
    until: float | None = None

    @classmethod
    def read(cls, path: Path) -> "SpendingLimits":
        """The limits in a file. Raises ConfigurationError for one that cannot be read, and for all but limits."""
        try:
            content = yaml_text.parse(read_bytes(path.parent.resolve() / path.name).decode())
        except (OSError, ValueError, yaml_text.Error) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
            raise _refusal(path, f"cannot be read: {why}") from None
        allowed = f"Allowed: {', '.join(READ)}"
        if not isinstance(content, dict) or not content:
            raise _refusal(path, f"names no limit. {allowed}")
        if unknown := [key for key in content if key not in READ]:
            raise _refusal(path, f"has the unknown key {printable(unknown[0])}. {allowed}")
        return cls(**{key: _value(path, key, value) for key, value in content.items()})


def budget_file(folder: Path) -> Path | None:
    """The budget that counts for a run in ``folder``: the one that MANYHEADS_BUDGET names, else outputs/budget.yaml.

    That outputs/ is the working directory's, or the one above the run. None if there is none. Raises ConfigurationError
    for somebody else's file that the user has not named, and for a name that is not absolute.
    """
    if named := os.environ.get(NAMED):
        if not Path(named).is_absolute():
            raise ConfigurationError.at(NAMED, named, " is not allowed. Allowed: an absolute path.")
        return Path(named)
    above = [parent for parent in folder.absolute().parents if parent.name == OUTPUTS.name]
    for path in (outputs / FILE for outputs in (Path.cwd() / OUTPUTS, *above)):
        if os.path.lexists(path):
            return _of_this_user(path)
    return None


def shown(path: Path) -> str:
    """A budget's file as people read it."""
    below = path.is_relative_to(Path.cwd())
    return printable(path.relative_to(Path.cwd()) if below else path)


def _of_this_user(path: Path) -> Path:
    owner = path.lstat().st_uid
    if owner not in (0, os.geteuid()):
        remedy = f"To follow it, name it: {NAMED}={printable(path)}. Otherwise, remove it"
        raise _refusal(path, f"belongs to user {owner}, not to you. {remedy}")
    return path


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value >= 0 else None


def _count(value: Any) -> float | None:
    return _number(value) if isinstance(value, int) else None


def _seconds(value: Any) -> float | None:
    return _number(value) if _number(value) is not None else seconds(value)


def _size(value: Any) -> float | None:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    return float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2]] if match else _count(value)


def _moment(value: Any) -> float | None:
    """A time in ISO 8601, here unless it names a zone; a date means its end."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return (moment + timedelta(days=len(value) == _DAY)).timestamp()


READ: dict[str, tuple[Callable[[Any], float | None], str]] = {  # by key, what reads its value, and what that may be
    "device_seconds": (_seconds, f"a number of at least 0, or with a unit, {', '.join(TIMES)}: 36h"),
    "runs": (_count, "an integer of at least 0"),
    "disk": (_size, "bytes, or 500MB, 20GB, 1.5TiB"),
    "until": (_moment, "a date or a time such as 2026-12-31T18:00"),
}


def _value(path: Path, key: str, value: Any) -> float:
    read, allowed = READ[key]
    if (number := read(value)) is None:
        raise _refusal(path, f"{key}: {printable(value)} is not allowed. Allowed: {allowed}")
    return number


def _refusal(path: Path, why: str) -> ConfigurationError:
    name = as_typed(NAMED, printable(path)) if os.environ.get(NAMED) == str(path) else shown(path)
    return ConfigurationError(f"{name}, the budget, {why.removesuffix('.')}.", key=NAMED)
