"""``mirror.json``, the marker: which objects are the files of a run. Objects that it does not name are ignored.

It is written last, as one object, so a copy always shows the run at one moment. Objects have the digest of their
content in their names, so that none is ever overwritten.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.leaving import may_leave

NAME = "mirror.json"
OBJECTS = "files"  # prefix of all objects but the marker
FORMAT = 1
MOST_FILES = 100_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OBJECT = re.compile(rf"{OBJECTS}/[\s\S]+\.[0-9a-f]{{16}}")


class Copy(NamedTuple):
    """A file of the run: its size in bytes, its sha256, when it was written, and the object with its content."""

    size: int
    sha256: str
    mtime_ns: int
    object: str


@dataclass(frozen=True)
class MirrorManifest:
    """``run``: the sha256 of the run's config, which identifies it; ``files``: by path in the run's folder."""

    run: str
    files: Mapping[str, Copy]

    def content(self) -> bytes:
        """The bytes of mirror.json, which include a digest of the rest."""
        about = {"format": FORMAT, "run": self.run, "files": {path: [*copy] for path, copy in self.files.items()}}
        return json.dumps({**about, "sha256": _digest(about)}, indent=1).encode()

    @classmethod
    def parse(cls, content: bytes, *, of: object) -> "MirrorManifest":
        """Parse a marker, which is untrusted. Raises ConfigurationError if it is damaged or has unsafe paths."""
        try:
            about = json.loads(content)
            digest = about.pop("sha256")
            if about["format"] != FORMAT or digest != _digest(about) or len(about["files"]) > MOST_FILES:
                raise ValueError
            files = {path: _copy(path, *parts) for path, parts in about["files"].items()}
            return cls(str(about["run"]), {path: copy for path, copy in files.items() if may_leave(path)})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ConfigurationError(f"{of}: {NAME} is damaged, or was written by another version.") from None

    @property
    def objects(self) -> set[str]:
        """The names of all objects that the files are stored in."""
        return {copy.object for copy in self.files.values()}


def object_name(path: str, sha256: str) -> str:
    """The name of the object that a file is stored in."""
    return f"{OBJECTS}/{path}.{sha256[:16]}"


def is_object(name: str) -> bool:
    """Whether a mirror may have stored something under this name."""
    return _OBJECT.fullmatch(name) is not None


def _copy(path: Any, size: Any, sha256: Any, mtime_ns: Any, name: Any) -> Copy:
    """The entry of a file. Raises ValueError if it is malformed, or a path points outside."""
    texts = all(isinstance(string, str) and string.isprintable() for string in (path, sha256, name))
    numbers = all(type(number) is int and 0 <= number < 2**63 for number in (size, mtime_ns))
    if not texts or not numbers or not _SHA256.fullmatch(sha256) or not is_object(name):
        raise ValueError
    for text in (path, name):
        if text != str(PurePosixPath(text)) or text.startswith("/") or {"..", "."} & {*PurePosixPath(text).parts}:
            raise ValueError
    return Copy(size, sha256, mtime_ns, name)


def _digest(about: Any) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
