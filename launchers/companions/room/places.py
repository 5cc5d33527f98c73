"""The folder in which a user's runs on this machine say which devices they use."""

import os
from functools import partial
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.private_folder import private_folder

NAMED = "MANYHEADS_LEASES"
# Not XDG_RUNTIME_DIR: cron and services have none, and it is emptied when its user logs out, while runs go on.
SHARED = Path("/tmp")
CONTAINERS = (Path("/.dockerenv"), Path("/run/.containerenv"))
LOCAL = f"leases are those of this container; to see those of others, set {NAMED} to a folder that they share"


def leases_folder(*, create: bool) -> Folder | None:
    """The folder, held open. It belongs to this user, who alone may enter it; None if there is none.

    ``create``: create it if it is missing. Raises ConfigurationError for one that others could write to or have made a
    link, and OSError if it can't be created or opened.
    """
    path = _path()
    return private_folder(path, create=create, refusal=partial(_refusal, path))


def is_local() -> bool:
    """Whether runs in other containers of this machine are not seen."""
    return not os.environ.get(NAMED) and any(path.exists() for path in CONTAINERS)


def _path() -> Path:
    named = os.environ.get(NAMED)
    if named and not Path(named).is_absolute():
        raise ConfigurationError.at(NAMED, named, " is not allowed. Allowed: an absolute path.")
    return Path(named) if named else SHARED / f"manyheads-{os.geteuid()}"


def _refusal(path: Path, why: str) -> ConfigurationError:
    remedy = f"Set {NAMED} to a folder that only you can enter"
    return ConfigurationError(f"{printable(path)}, where runs say which devices they use, {why}. {remedy}.", key=NAMED)
