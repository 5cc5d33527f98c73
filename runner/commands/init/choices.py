"""Which script, model and data set are meant: as typed, the only one, or as answered on the terminal."""

import sys
from collections.abc import Iterable
from pathlib import Path

from manyheads.runner.commands.init.found_class import FoundClass
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.wording import nearest

MOST_SHOWN = 12


def named(classes: list[FoundClass], folder: Path) -> dict[str, FoundClass]:
    """The classes by file.py:Class, as --model and --data take them."""
    return {f"{cls.path.relative_to(folder)}:{cls.name}": cls for cls in classes}


def choose(what: str, names: dict[str, str], *, typed: str | None) -> str | None:
    """One of the names, which are shown as their values; None for no data."""
    if typed is not None:
        if typed not in names:
            kind = "training script" if what == "script" else "class"
            rest = f": there is no such {kind}.{nearest(typed, names)}"
            raise ConfigurationError.at(f"--{what}", typed, rest, allowed=[*names])
        return typed
    if len(names) == 1:
        return next(iter(names))
    print(f"\n{what}:")
    for number, text in enumerate([*names.values()][:MOST_SHOWN], 1):
        print(f"  {number}  {printable(text)}")
    if len(names) > MOST_SHOWN:
        print(f"  ... and {len(names) - MOST_SHOWN} more: --{what} {_form(what)}")
    if what == "data":
        print("  0  none of them: one of manyheads' data sets, or a class that you will write")
    if (answer := _answer(f"Which {what}? [1] ", what, names)) == "0" and what == "data":
        return None
    if not answer.isdecimal() or not 1 <= int(answer) <= len(names):
        raise ConfigurationError(f"{answer} is not one of the numbers above.")
    return [*names][int(answer) - 1]


def _form(what: str) -> str:
    return "file.py" if what == "script" else "file.py:Class"


def _answer(question: str, what: str, names: Iterable[str]) -> str:
    """The typed answer, or 1 if it is empty. Raises ConfigurationError without a terminal, and for Ctrl-D."""
    why = "there is no terminal to ask on"
    if sys.stdin.isatty():
        try:
            return input(question).strip() or "1"
        except EOFError:
            print()
            why = "nothing was chosen"
    raise ConfigurationError(f"{why}. Choose with --{what} {_form(what)}.", key=f"--{what}", allowed=[*names])
