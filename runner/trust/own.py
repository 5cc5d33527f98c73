"""What the user has taken over with ``python -m runner trust``: folders of configs, and the code of recorded runs."""

import hashlib
import hmac
import json
from pathlib import Path

from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_taken_over, seal_of, take_over

_PROJECT, _CODE = "project", "code"


def own_project(folder: Path) -> Path:
    """The folder of configs that trusting ``folder`` is about: its conf/, else itself."""
    conf = folder / "conf"
    return (conf if conf.is_dir() else folder).resolve()


def trust_project(folder: Path) -> None:
    """From now on these configs, and those in folders below, are the user's own. Raises OSError."""
    take_over(_PROJECT, _name(own_project(folder)))


def is_own_project(folder: Path) -> bool:
    """Whether the user has said so of this folder, or of one that it lies in."""
    path = folder.resolve()
    return any(is_taken_over(_PROJECT, _name(each)) for each in (path, *path.parents))


def trust_run(folder: RunFolder, commit: object, diff: bytes) -> None:
    """From now on this run's config, and the code that it was recorded with, are the user's own. Raises OSError."""
    for path in (folder.config, folder.composed):
        if path.exists():
            take_over(path.name, read_bytes(path))
    take_over(_CODE, json.dumps(_about(folder, commit, diff)).encode())


def code_seal(folder: RunFolder, commit: object, diff: bytes) -> str | None:
    """By what a run's record shows that commit and changes are those it was started from."""
    return seal_of(_CODE, *_about(folder, commit, diff))


def is_own_code(folder: RunFolder, commit: object, diff: bytes, seal: object) -> bool:
    """Whether the user recorded this code with this run, or took it over. ``seal``: the record's."""
    expected = code_seal(folder, commit, diff)
    if expected is not None and isinstance(seal, str) and hmac.compare_digest(seal.encode(), expected.encode()):
        return True
    return is_taken_over(_CODE, json.dumps(_about(folder, commit, diff)).encode())


def _about(folder: RunFolder, commit: object, diff: bytes) -> tuple[str, str, str]:
    """The run.yaml is part of it, so that the code of one run is none of another."""
    config = folder.config_content() if folder.config.exists() else b""
    return (hashlib.sha256(config).hexdigest(), str(commit), hashlib.sha256(diff).hexdigest())


def _name(folder: Path) -> bytes:
    return str(folder).encode(errors="surrogateescape")
