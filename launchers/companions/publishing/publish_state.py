"""<run>/trackers/<name>.json: how far a run has been published, so that publishing can continue."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.provenance.provenance import SECRET, without_secrets
from manyheads.runner.run.data_files import no_link, read_json
from manyheads.runner.run.files import exclusive, make_folder, write_whole
from manyheads.runner.run.run_folder import RunFolder

FOLDER = "trackers"


@dataclass
class PublishState:
    """How far a run has been published to one tracker.

    ``run``: the tracker's name for it; ``steps``, ``epochs``: the last step of which the tracker has a row of that
    table. ``status``: the last one sent, None while there is more to send; ``files``: digests of uploaded files;
    ``pictures``: of those last shown; ``error``: why publishing is not complete.
    """

    run: str | None = None
    url: str | None = None
    steps: int = -1
    epochs: int = -1
    status: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    def write(self, path: Path) -> None:
        """Replace the file by this state. Raises OSError."""
        make_folder(path.parent)
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> "PublishState":
        """Read the state; that of an unpublished run if there is no file."""
        try:
            content = read_json(path)
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        fresh = asdict(cls())
        kinds = {"run": str, "url": str, "steps": int, "epochs": int, "status": str, "error": str}
        kinds |= {"files": dict, "pictures": dict}
        right = {key: content[key] for key in fresh if isinstance(content.get(key), kinds[key])}
        return cls(**right)


def note_failure(folder: RunFolder, name: str, error: BaseException) -> None:
    """Record why nothing could be published, keeping the progress made before."""
    state = PublishState.read(state_file(folder, name))
    state.status, state.error = None, masked(error)
    state.write(state_file(folder, name))


def state_file(folder: RunFolder, name: str) -> Path:
    """The file with the state of a run at the tracker ``name``."""
    return folder.path / FOLDER / f"{name}.json"


@contextmanager
def one_publisher(folder: RunFolder, name: str) -> Iterator[None]:
    """A context in which no other process publishes this run to ``name``, since two would create it twice.

    Raises ConfigurationError if another process does.
    """
    lock = state_file(folder, name).with_suffix(".lock")
    try:
        make_folder(lock.parent)
        open(lock, "ab", opener=no_link).close()
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be published: {lock}: {error.strerror}.") from None
    with exclusive(lock, of=f"publishing {folder} to {name}"):
        yield


MOST_CHARACTERS = 160
SHORTEST = 6  # shorter values are not taken for secrets


def masked(error: BaseException) -> str:
    """The kind and the first line of an error, with passwords in addresses and the environment's secrets masked."""
    text = str(error).strip().partition("\n")[0]
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= SHORTEST:
            text = text.replace(value, "***")
    text = " ".join(without_secrets(word) for word in text.split(" "))[:MOST_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
