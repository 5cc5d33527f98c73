"""Wrappers of launchers: each module in this folder is one, and nothing else names it.

A wrapper has these functions: ``around(launcher)`` returns the launcher, or one that uses it; ``join(option, digests)``
takes part in a run whose parent is on another machine; ``examine(hosts, ...)`` is for doctor.
"""

import importlib
import pkgutil
from types import ModuleType

from manyheads.launchers.launcher import Launcher
from manyheads.runner.errors import ConfigurationError


def wrapped(launcher: Launcher) -> Launcher:
    """The launcher in the wrappers that apply to it. Raises ConfigurationError if it needs one that is missing."""
    for wrapper in _wrappers():
        launcher = wrapper.around(launcher)
    if launcher.settings is not None and not launcher.starts_agents:
        raise _missing()
    return launcher


def several_machines() -> ModuleType:
    """The wrapper for several machines. Raises ConfigurationError if this installation has none."""
    for wrapper in _wrappers():
        return wrapper
    raise _missing()


def _missing() -> ConfigurationError:
    return ConfigurationError("This installation has no launchers/nodes, which runs on several machines need.")


def _wrappers() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
