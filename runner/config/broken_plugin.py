"""A plugin for Hydra, installed by the user, that cannot be imported: Hydra imports all of them for every command."""

import platform
import traceback
from importlib.metadata import distributions

from manyheads.runner.errors import ConfigurationError


def broken_plugin(error: Exception) -> ConfigurationError | None:
    """The error about the plugin whose import failed; None for all other errors.

    Hydra itself goes on without a plugin that raises ImportError, which it reports in a warning.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    scans = [frame for frame in frames if frame.f_globals.get("__name__") == "hydra.core.plugins"]
    module = next((str(each.f_locals["modname"]) for each in scans if "modname" in each.f_locals), None)
    if module is None:
        return None
    where, python = module.replace(".", "/"), platform.python_version()
    files = ((each, str(file)) for each in distributions() for file in each.files or ())
    owner = next((each for each, file in files if file in (f"{where}.py", f"{where}/__init__.py")), None)
    name = f"{owner.name} {owner.version}" if owner else module
    reason = f"{type(error).__name__}: {error}".rstrip(".")
    return ConfigurationError(
        f"the Hydra plugin {name} cannot be imported with Python {python}: {reason}. Uninstall it, or install another "
        "version."
    )
