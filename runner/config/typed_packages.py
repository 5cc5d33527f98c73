"""The packages that the user typed as trusted: ``trust=[my_package]``."""

import re
from collections.abc import Iterable

from manyheads.runner.errors import ConfigurationError

_TYPED = re.compile(r"\+{0,2}trust=(.*)", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
ALLOWED = "Allowed: names of packages, such as my_package or my_package.models"


def split_typed(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """The packages named by ``trust=...`` among the arguments, and the other arguments. Raises ConfigurationError."""
    typed, others = [], []
    for argument in arguments:
        if match := _TYPED.fullmatch(argument):
            typed += names(match[1].strip().removeprefix("[").removesuffix("]"), argument=argument)
        else:
            others.append(argument)
    return typed, others


def names(text: str, *, argument: str) -> list[str]:
    """Parse package names separated by commas. Raises ConfigurationError, which quotes ``argument``."""
    packages = [name.strip().strip("'\"") for name in text.split(",")]
    packages = [name for name in packages if name]
    if not all(map(NAME.fullmatch, packages)):
        message = f"{argument} is not the name of a package. {ALLOWED}, separated by commas."
        raise ConfigurationError(message, key="trust", value=text)
    return packages
