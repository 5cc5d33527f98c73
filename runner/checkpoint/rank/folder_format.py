"""Checkpoints that are folders: the package beside this one that reads and writes them, which nothing else names."""

import importlib
import pkgutil
from types import ModuleType

from manyheads.runner import checkpoint
from manyheads.runner.errors import ConfigurationError


def folder_format() -> ModuleType:
    """The module ``rank.folders`` of that package. Raises ConfigurationError if this installation has none."""
    for module in pkgutil.iter_modules(checkpoint.__path__):
        if module.ispkg and module.name != "rank":
            return importlib.import_module(f"{checkpoint.__name__}.{module.name}.rank.folders")
    raise ConfigurationError(
        "checkpoint.format: this installation does not support sharded checkpoints. Set it to single.",
        key="checkpoint.format",
    )
