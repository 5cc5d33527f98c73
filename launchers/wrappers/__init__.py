"""The wrapper of launchers for several machines: the module in this folder, which nothing else names.

It has these functions: ``around(launcher)`` returns a launcher that uses it; ``join(option, digests)``
takes part in a run whose parent is on another machine; ``examine(hosts, ...)`` is for doctor.
"""

import importlib
import pkgutil
from types import ModuleType

from manyheads.runner.errors import ConfigurationError


def several_machines() -> ModuleType:
    """The wrapper for several machines. Raises ConfigurationError if this installation has none."""
    for module in pkgutil.iter_modules(__path__):
        return importlib.import_module(f"{__name__}.{module.name}")
    raise ConfigurationError("This installation has no launchers/nodes, which runs on several machines need.")
