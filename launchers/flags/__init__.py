"""Flags of ``train`` that are not Hydra's: each package in this folder is one, named as its flag.

Its ``take`` takes what that of the command does, with the same result, and its ``line_of`` returns the command line
without the flag and what belongs to it; a flag that does not work in ranks of other launchers has none. Nothing else
names a flag, so that one is added or removed with its folder.
"""

import importlib
import pkgutil
from collections.abc import Collection
from types import ModuleType

from manyheads.runner.errors import ConfigurationError


def chosen(arguments: Collection[str]) -> ModuleType | None:
    """The package of the flag that is typed; None if there is none. Raises ConfigurationError for more than one."""
    typed = [module.name for module in pkgutil.iter_modules(__path__) if f"--{module.name}" in arguments]
    if typed[1:]:
        message = f"--{' and --'.join(typed)} cannot be combined. Leave out one of them."
        raise ConfigurationError(message, key=f"--{typed[-1]}")
    return importlib.import_module(f"{__name__}.{typed[0]}") if typed else None
