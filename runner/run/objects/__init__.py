"""Object storage as its users see it; what talks to it is each package of this folder, in a module ``storage``.

Nothing else names one, so that support of object storage is added or removed with its folder.
"""

import importlib
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from manyheads.runner.errors import ConfigurationError, printable

if TYPE_CHECKING:
    from manyheads.runner.run.objects.storage.storage import Storage

SCHEMES = ("s3", "gs", "az")
_BEGIN = re.compile(rf"(?:{'|'.join(SCHEMES)})://", re.IGNORECASE)
_WHOLE = re.compile(rf"({'|'.join(SCHEMES)})://([A-Za-z0-9][A-Za-z0-9._-]*)((?:/[^/?#\\]+)*)/*")
_LOGIN = re.compile(r"(\w+://).*@")
ALLOWED = "s3://<bucket>/<prefix>, gs:// or az://, without user, password or options"


@dataclass(frozen=True)
class Address:
    """A place in object storage: everything below a prefix of a bucket."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.text}/{name}")

    @property
    def name(self) -> str:
        """The last part of the prefix."""
        return self.text.rpartition("/")[2]

    @classmethod
    def of(cls, value: str, *, key: str) -> Self:
        """Parse an address. ``key``: for errors. Raises ConfigurationError, which hides a password."""
        match = _WHOLE.fullmatch(value)
        parts = match[3].split("/") if match else []
        if match is None or not value.isprintable() or {".", ".."} & {*parts}:
            shown = printable(_LOGIN.sub(r"\1***@", value.partition("?")[0]))
            raise ConfigurationError.at(
                key,
                shown,
                f" is not an address of object storage. Allowed: {ALLOWED}. The server and your credentials are taken "
                "from your environment, such as AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID.",
            )
        return cls(f"{match[1]}://{match[2]}{match[3]}")


def is_address(value: Any) -> bool:
    """Whether a value is meant to be an address of object storage, valid or not."""
    return isinstance(value, str) and _BEGIN.match(value) is not None


def place_of(value: str, *, key: str) -> Path | Address:
    """A value as an address or else a path. Raises ConfigurationError for an invalid address."""
    return Address.of(value, key=key) if is_address(value) else Path(value)


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
