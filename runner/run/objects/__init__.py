"""Object storage as its users see it; what talks to it is each package of this folder, in a module ``storage``.

Nothing else names one, so that support of object storage is added or removed with its folder.
"""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from manyheads.runner.run.objects.address import Address

if TYPE_CHECKING:
    from manyheads.runner.run.objects.storage.storage import Storage


class StorageError(Exception):
    """Object storage failed; the message is the end of a sentence, and names no server."""


class MissingObject(StorageError):
    """The object does not exist."""


class Object(NamedTuple):
    """What is stored under a name, below an address. ``tag``: changes with the content."""

    name: str
    size: int
    tag: str


class Cache(NamedTuple):
    """A cache on the local disk. ``folder``: of its entries; ``most``: bytes of all of them."""

    folder: Path
    most: int


def unavailable() -> str | None:
    """Why object storage cannot be used here; None if it can."""
    support = _support()
    return support.unavailable() if support else "this installation does not support object storage"


def opened(address: Address, *, retry_for: float, cache: Cache | None = None) -> "Storage":
    """The objects below an address, as ``storage.Storage`` describes. Raises StorageError."""
    if (support := _support()) is None:
        raise StorageError(str(unavailable()))
    return support.Storage(address, retry_for=retry_for, cache=cache)


def _support() -> ModuleType | None:
    packages = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
    return importlib.import_module(f"{__name__}.{packages[0]}.storage") if packages else None
