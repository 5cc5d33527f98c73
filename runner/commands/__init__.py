"""One module or package for each command of ``manyheads``, see ``app.py``."""

import argparse
import importlib
import pkgutil
from types import ModuleType

A_RUN = "the folder of a run, such as outputs/2026-01-31/12-00-00"


def names() -> dict[str, str]:
    """The name of each command's module, by the command as it is typed; train first."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name.replace("_", "-"): name for name in sorted(modules, key=lambda name: name != "train")}


def module_of(name: str) -> ModuleType:
    """Import the module of a command."""
    return importlib.import_module(f"{__name__}.{names()[name]}")


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add the argument that selects a run's weights."""
    parser.add_argument("--weights", metavar="best|last", help="which weights; by default the best if the run has them")
