"""Parts of a folder that are the user's own: recorded by this user, or shown by ``manyheads trust`` and then trusted.

Either way, digests cover everything in the folder that may run, together: of a run its config, also as composed, the
code and the directory that it was started from; of a sweep the arguments of its search. A run's own digests are in
its ``seal.json``, with an HMAC-SHA256 by a secret key that never leaves the user's own folder: valid wherever that key
exists, such as on all machines of a cluster, and wherever the folder is moved to. Digests that the user trusts are in
the user's own folder, for one path. Where no key can be kept, a run is the user's own for the process that recorded it,
and for its children: the key is in their memory.
"""

import hashlib
import hmac
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.machine.ownership import is_closed
from manyheads.runner.machine.user_folders import STATE, create_private, state_folder
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import write_whole

NAME = "seal.json"
KEY_BYTES = 32


def digests(parts: Mapping[str, bytes | str]) -> dict[str, str]:
    """sha256 of the parts of a folder, by name: files by their relative paths, other values by any name."""
    return {name: hashlib.sha256(_bytes(content)).hexdigest() for name, content in parts.items()}


def digest_of(about: Any) -> str:
    """A short digest of a value as JSON with sorted keys. What JSON cannot represent counts as its text."""
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:16]


def is_own(folder: Path, parts: Mapping[str, bytes | str]) -> bool:
    """Whether this user recorded all these parts of the folder together, or trusts them together."""
    wanted = digests(parts).items()
    return any(wanted <= sealed.items() for sealed in (_recorded(folder), _trusted(folder) or {}) if sealed) or (
        is_own_place(folder)
    )


def is_own_place(folder: Path) -> bool:
    """Whether the user trusts this folder, or one that contains it, with everything that is ever in it."""
    path = folder.resolve()
    return any(_trusted(ancestor) is None for ancestor in (path, *path.parents))


def project_of(configs: Path) -> Path:
    """The project of a folder of configs: the one with which the user trusted it, else the folder that contains it."""
    project = _record_of(configs).get("project")
    return Path(project) if project else configs.resolve().parent


def record(folder: Path, parts: Mapping[str, bytes | str], *, anew: bool = False) -> None:
    """Seal parts of a folder as this user's own: if no key can be created, for this process and its children alone.

    anew: nothing else in the folder stays the user's own, since another run starts there.
    """
    before = {} if anew else {**(_trusted(folder) or {}), **_recorded(folder)}
    covers = {**before, **digests(parts)}
    if (key := _key() or _new_key()) is None:
        key = _key_in_memory()
        warn(f"no key of yours can be kept here, so later commands will not know this run as yours: {how_to_keep()}")
    code = _keyed(key, "seal", covers)
    write_whole(folder / NAME, json.dumps({"covers": covers, "seal": code}, indent=2) + "\n")


def trust(folder: Path, covers: Mapping[str, str] | None, *, project: Path | None = None) -> None:
    """Trust the parts with these digests, in this folder; None: everything that is ever in it. Raises OSError.

    project: the folder whose configs are trusted, to which the files that they name are relative.
    """
    path = _trusted_file(folder.resolve())
    if path is None:
        raise OSError(f"there is no folder for the list of what you trust: {how_to_keep()}")
    create_private(path.parent)
    about = {"folder": str(folder.resolve()), "project": project and str(project.resolve()), "covers": covers}
    write_whole(path, json.dumps(about, indent=2) + "\n")


def keyed(purpose: str, content: Any, *, lasting: bool = True) -> str | None:
    """An HMAC over a value for one purpose; None if there is no key and none can be created.

    ``lasting``: without a key, return None rather than an HMAC that only this process and its children recognize.
    """
    key = _key() or _new_key() or (None if lasting else _key_in_memory())
    return None if key is None else _keyed(key, purpose, content)


def _recorded(folder: Path) -> dict[str, str]:
    """The digests under the user's seal in the folder; none if the seal is missing or uses another key."""
    try:
        content = json.loads(read_bytes(folder.resolve() / NAME))
        covers, code = content["covers"], content["seal"]
    except (OSError, ConfigurationError, ValueError, LookupError, TypeError, RecursionError):
        return {}
    expected = (_keyed(key, "seal", covers) for key in (_key(), _key_in_memory()) if key)
    is_valid = isinstance(code, str) and any(
        hmac.compare_digest(code.encode(), candidate.encode()) for candidate in expected
    )
    return covers if is_valid else {}


def _trusted(folder: Path) -> dict[str, str] | None:
    """The digests that the user trusts in the folder at this path; None if everything there is trusted."""
    return _record_of(folder).get("covers", {})


def _record_of(folder: Path) -> dict[str, Any]:
    """What ``trust`` wrote about the folder at this path."""
    path = _trusted_file(resolved := folder.resolve())
    try:
        record = json.loads(read_bytes(path)) if path is not None and is_closed(path.parent) else {}
    except (OSError, ValueError, ConfigurationError):
        return {}
    return record if record.get("folder") == str(resolved) else {}  # else the file was renamed


def _trusted_file(path: Path) -> Path | None:
    key = key_file()
    return None if key is None else key.parent.resolve() / "trusted" / hashlib.sha256(_bytes(str(path))).hexdigest()


def _bytes(content: bytes | str) -> bytes:
    return content if isinstance(content, bytes) else content.encode(errors="surrogateescape")


def _keyed(key: bytes, purpose: str, content: Any) -> str:
    about = json.dumps(["manyheads 3", purpose, content], sort_keys=True).encode()
    return hmac.new(key, about, hashlib.sha256).hexdigest()


def key_file() -> Path | None:
    """The path of the user's key; None if no folder can hold it. Raises ConfigurationError as ``state_folder``."""
    folder = state_folder()
    return None if folder is None else folder / "key"


def how_to_keep() -> str:
    """What to do so that later commands find the key."""
    return f"set {STATE} to a folder of yours that is kept, in a container to a mounted one"


def how_it_is_known() -> str:
    """By what a run is known as the user's own, and what to do so that later commands find it."""
    key = key_file()
    if key is None:
        return f"Your own runs are known by your key, and no folder holds one: {how_to_keep()}."
    return (
        f"Your own runs are known by the key in {key.parent}: in a container, mount that folder, or set {STATE} to one "
        "that is kept."
    )


def _key_in_memory() -> bytes:
    """A key that only this process and its children have."""
    from multiprocessing import current_process  # slow, and only needed without a home folder

    return hmac.digest(bytes(current_process().authkey), b"manyheads", "sha256")


def _key() -> bytes | None:
    """The user's key; None if there is none, or if others could have read or written it."""
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
    """Create the key, complete and only once: if several processes try at the same time, all get the first one's."""
    path = key_file()
    if path is None:
        return None
    try:
        create_private(path.parent)
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
