"""Seals: how a file says that this user wrote it on this host, in a way that no text in a folder can claim.

A sealed file begins with the line ``# sealed <hex>``: HMAC-SHA256 over user, host, the file's name and all the rest,
with a secret key that never leaves the user's own folder. Whoever edits the file breaks the seal.
"""

import hashlib
import hmac
import os
import re
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from manyheads.runner.run.files import write_whole
from manyheads.runner.run.user_folders import user_folder

KEY_BYTES = 32
_LINE = re.compile(rb"# sealed ([0-9a-f]{64})\n")


def sealed(content: bytes, *, name: str) -> bytes:
    """``content`` with its seal, for a file of that name; as it is where there is no key and none can be made."""
    key = _key() or _new_key()
    return content if key is None else b"# sealed %s\n%s" % (_seal(key, content, name).encode(), content)


def unsealed(content: bytes) -> bytes:
    """The content without the line of its seal, whoever's that is."""
    return content[match.end() :] if (match := _LINE.match(content)) else content


def is_sealed_here(path: Path) -> bool:
    """Whether this user wrote the file on this host, and nobody has edited it since. False where there is none."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    match, key = _LINE.match(content), _key()
    if match is None or key is None:
        return False
    return hmac.compare_digest(match[1].decode(), _seal(key, content[match.end() :], path.name))


def seal_file(path: Path) -> None:
    """Seal a file that this process has just written, if it has."""
    with suppress(FileNotFoundError):
        write_whole(path, sealed(unsealed(path.read_bytes()), name=path.name))


def key_file() -> Path | None:
    """Where the user's key is."""
    folder = user_folder("state")
    return None if folder is None else folder / "manyheads" / "key"


def _seal(key: bytes, content: bytes, name: str) -> str:
    about = f"{os.getuid()}\0{socket.gethostname()}\0{name}\0".encode()
    return hmac.new(key, about + content, hashlib.sha256).hexdigest()


def _key() -> bytes | None:
    """None also for a key that others could have read or written."""
    path = key_file()
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(KEY_BYTES + 1)
    except OSError:
        return None
    is_secret = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return key if is_secret and len(key) == KEY_BYTES else None


def _new_key() -> bytes | None:
    """Made once and whole: of several processes that try at the same time the first one's counts for all."""
    path = key_file()
    if path is None:
        return None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent)  # readable by its owner alone
        try:
            with open(handle, "wb") as file:
                file.write(os.urandom(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(aside, path)
        finally:
            os.unlink(aside)
    except OSError:
        return None
    return _key()
