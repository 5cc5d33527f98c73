"""Addresses of object storage: ``s3://bucket/prefix``. They name neither a server nor credentials."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from manyheads.runner.errors import ConfigurationError, printable

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
