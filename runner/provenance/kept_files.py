"""Copies of the user's own files that a run executes, and of its configs: ``code/<the file's path>`` in its folder.

The run's seal covers them. A snapshot of them is imported: their checked bytes, in a folder that only the user
can write to. So it makes no difference who replaces the copies afterwards.
"""

import hashlib
from pathlib import Path
from tempfile import mkdtemp  # noqa: TID251 - in the private state folder

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.ownership import is_mine
from manyheads.runner.machine.user_folders import create_private
from manyheads.runner.option.source_file import SourceFile
from manyheads.runner.option.tree import Section, files_named
from manyheads.runner.provenance.own_code import own_files
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import make_folder, remove, take_name, write_whole
from manyheads.runner.run.run_folder import RunFolder


def keep_files(folder: RunFolder, config: Section) -> dict[str, bytes]:
    """Copy the user's own files to the run's folder; return the copies' contents by name, for the run's seal.

    A missing file is left for the run to report.
    """
    contents = {}
    for path in own_files(config):
        copy = kept(folder, path)
        make_folder(copy.parent)
        contents[name_of(path)] = path.read_bytes()
        write_whole(copy, contents[name_of(path)])
    return contents


def kept(folder: RunFolder, path: Path) -> Path:
    """The path of a file's copy."""
    return folder.code / path.relative_to("/")


def name_of(path: Path) -> str:
    """The name of a file's copy in a seal."""
    return f"code{path}"


def changed_files(folder: RunFolder, config: Section) -> dict[str, SourceFile]:
    """The files of a run's config that have changed since it started, by key."""
    try:
        digests = read_json(folder.provenance).get("own_code")
    except OSError:  # it was planned, and never started
        return {}
    recorded = digests if isinstance(digests, dict) else {}
    return {key: file for key, file in files_named(config).items() if not _is_as_in(recorded, file.path)}


def _is_as_in(recorded: dict[str, object], path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == recorded.get(str(path))


def snapshot(folder: RunFolder) -> Path | None:
    """A private folder with each of the run's copies at its original path: ``<snapshot>/home/me/net.py``.

    The copies in the run folder are never imported: anyone who can write there could replace them after the check.
    It is in the user's state folder, named by its content, and stays there, since later runs may name its files. None
    if the copies are not the user's own. Raises OSError if it cannot be written.
    """
    copies, key = _own_copies(folder), seal.key_file()
    name = seal.keyed("code", seal.digests(copies)) if copies else None
    if name is None or key is None:
        return None
    path = key.parent.resolve() / "code" / name
    if not path.is_dir():
        create_private(path.parent)
        beside = Path(mkdtemp(dir=path.parent))  # nobody else can read or write it
        for copy, content in copies.items():
            file = beside / Path(copy).relative_to(folder.code.name)
            make_folder(file.parent, mode=0o700)
            write_whole(file, content)
        try:
            take_name(beside, path)
        except OSError:  # another process was faster, or the disk fails
            remove(beside)
            if not path.is_dir():
                raise
    return path if is_mine(path) else None


def _own_copies(folder: RunFolder) -> dict[str, bytes]:
    """The contents of a run's copies by name, if the user recorded or trusts all of them; else nothing."""
    try:
        copies = folder.copied_code()
    except (OSError, ConfigurationError):
        return {}
    return copies if copies and folder.owns(**copies) else {}
