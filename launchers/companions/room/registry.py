"""Claims as files of a folder, each locked by all processes of its run: the kernel says when the last one has ended.

A file is created, changed, examined and removed only by the process that holds the lock on the folder itself, which is
never held for longer than it takes to read the others.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from manyheads.launchers.companions.room.claims import Claim
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.loop.rank_process import hold, let_go
from manyheads.runner.run.files import try_lock
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.private_folder import folder_turn, private_folder

TURN_SECONDS = 10.0
SUFFIX = ".json"
_NAME = re.compile(rf"(\d{{9}})-\d+-[0-9a-f]{{8}}\{SUFFIX}")
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


class Lease:
    """A claim of this process's run, until ``end``. ``path``: the file that its ranks keep locked too."""

    def __init__(self, folder: Folder, claim: Claim, name: str, descriptor: int):
        self.claim, self.path = claim, folder.path / name
        self._descriptor = descriptor
        hold(descriptor)
        self.write(claim)

    def write(self, claim: Claim) -> None:
        """Replace the claim. Raises OSError, for example of a full disk."""
        self.claim = claim
        content = json.dumps({key: value for key, value in asdict(claim).items() if key != "number"}).encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))

    def end(self) -> None:
        """No longer hold it; ranks that still run do."""
        let_go(self._descriptor)


class Registry(AbstractContextManager["Registry"]):
    """All claims of this user's runs. Use it in a ``with`` statement."""

    def __init__(self, folder: Folder):
        self._folder = folder

    @classmethod
    def created(cls) -> "Registry":
        """The registry, created if it is missing. Raises as ``leases_folder``."""
        folder = leases_folder(create=True)
        if folder is None:
            raise FileNotFoundError("it was removed at once")
        return cls(folder)

    @classmethod
    def existing(cls) -> "Registry | None":
        """The registry, to be read; None if no run has made a claim. Raises as ``leases_folder``."""
        folder = leases_folder(create=False)
        return None if folder is None else cls(folder)

    def __exit__(self, *_: object) -> None:
        self._folder.__exit__()

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @contextmanager
    def turn(self) -> Iterator[list[Claim]]:
        """A context in which nobody else reads or changes claims; yields all of them, in their order.

        The files of those whose runs have ended are removed, unless they can only be read. Raises as ``folder_turn``.
        """
        with folder_turn(self._folder, seconds=TURN_SECONDS):
            yield self._claims()

    def add(self, claim: Claim, claims: list[Claim]) -> Lease:
        """Make a claim, within ``turn``, which has yielded ``claims``. Raises OSError."""
        claim = replace(claim, number=1 + max((other.number for other in claims), default=0))
        name = f"{claim.number:09d}-{claim.pid}-{secrets.token_hex(4)}{SUFFIX}"
        return Lease(self._folder, claim, name, self._folder.plain(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def _claims(self) -> list[Claim]:
        claims = []
        for name in self._folder.list():
            if (match := _NAME.fullmatch(name)) is None:
                continue
            descriptor = self._folder.plain(name, os.O_RDONLY)
            try:
                if try_lock(descriptor):
                    with suppress(OSError):
                        self._folder.remove(name)
                    continue
                with suppress(ValueError, TypeError, KeyError):  # it was killed while it wrote
                    content = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
                    claims.append(Claim.from_json(content, number=int(match[1])))
            finally:
                os.close(descriptor)
        return claims


def current_claims() -> tuple[list[Claim], Path | None]:
    """All claims on this machine's devices, and their folder; None if no run has made a claim.

    Raises ConfigurationError if they can't be read, or others could have written them.
    """
    try:
        registry = Registry.existing()
        if registry is None:
            return [], None
        with registry, registry.turn() as claims:
            return claims, registry.path
    except OSError as error:
        raise ConfigurationError(f"{error.filename or 'the folder of leases'}: {error.strerror or error}.") from None
