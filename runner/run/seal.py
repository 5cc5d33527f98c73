"""What is the user's own: by a seal that his key made, or since he took it over with ``python -m runner trust``.

A sealed file begins with the line ``# sealed <hex> <number>``: HMAC-SHA256 over the file's name, a random number and
all the rest, with a secret key that never leaves the user's own folder. It is valid wherever that key is, such as on
all machines of a cluster, and wherever the folder is moved to. Whoever edits the file breaks the seal.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.user_folders import user_folder

KEY_BYTES = 32
_LINE = re.compile(rb"# sealed ([0-9a-f]{64})(?: ([0-9a-f]{32}))?\n")


def sealed(content: bytes, *, name: str) -> bytes:
    """``content`` with its seal, for a file of that name; unchanged if there is no key and none can be created."""
    number = secrets.token_hex(16)
    code = _seal(_key() or _new_key(), name, number, content)
    return content if code is None else f"# sealed {code} {number}\n".encode() + content


def unsealed(content: bytes) -> bytes:
    """The content without the line of its seal, whoever's that is."""
    return content[match.end() :] if (match := _LINE.match(content)) else content


def is_own(content: bytes, *, name: str) -> bool:
    """Whether this user wrote a file of that name and content, or took it over."""
    key, match = _key(), _LINE.match(content)
    if key is not None and match is not None:
        number, rest = match[2], content[match.end() :]
        expected = _seal(key, name, number.decode(), rest) if number else _earlier_seal(key, name, rest)
        if hmac.compare_digest(match[1].decode(), str(expected)):
            return True
    return is_taken_over(name, content)


def is_sealed_here(path: Path) -> bool:
    """Whether this user wrote or trusted the file, and it has not been edited since. False if there is none."""
    try:
        with open(path, "rb", opener=no_link) as file:
            return is_own(file.read(), name=path.name)
    except (OSError, ValueError):
        return False


def seal_file(path: Path) -> None:
    """Seal a file that this process has just written, if it has."""
    if path.exists() and not is_sealed_here(path):
        write_whole(path, sealed(unsealed(path.read_bytes()), name=path.name))


def seal_of(*parts: str) -> str | None:
    """A seal over all of these texts together; None where there is no key and none can be made."""
    return _seal(_key() or _new_key(), "parts", "", json.dumps(parts).encode())


def take_over(name: str, content: bytes) -> None:
    """From now on this is the user's own. Raises OSError."""
    folder = _taken()
    if folder is None:
        raise OSError("there is no folder for the list of what you trust: set XDG_STATE_HOME")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder.resolve() / _digest(name, content), name + "\n")


def is_taken_over(name: str, content: bytes) -> bool:
    """Whether the user said so of exactly this."""
    folder = _taken()
    return folder is not None and (folder / _digest(name, content)).is_file()


def key_file() -> Path | None:
    """Where the user's key is."""
    folder = user_folder("state")
    return None if folder is None else folder / "manyheads" / "key"


def _taken() -> Path | None:
    key = key_file()
    return None if key is None else key.parent / "trusted"


def _digest(name: str, content: bytes) -> str:
    return hashlib.sha256(name.encode(errors="surrogateescape") + b"\0" + content).hexdigest()


def _seal(key: bytes | None, name: str, number: str, content: bytes) -> str | None:
    about = f"manyheads 2\0{name}\0{number}\0".encode()
    return None if key is None else hmac.new(key, about + content, hashlib.sha256).hexdigest()


def _earlier_seal(key: bytes, name: str, content: bytes) -> str:
    """As versions before 0.2 made it, for one host only."""
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
