"""Snapshots of the copies in a run folder: their checked bytes, in a folder that only the user can write to.

Copies are checked against the run's seal, and imported later. Somebody who can write to the run folder could replace
them in between, so what is imported is never a copy itself.
"""

from pathlib import Path
from tempfile import mkdtemp  # noqa: TID251 - in the private state folder

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.ownership import is_mine
from manyheads.runner.machine.user_folders import create_private
from manyheads.runner.run import seal
from manyheads.runner.run.files import make_folder, remove, take_name, write_whole
from manyheads.runner.run.run_folder import RunFolder


def snapshot(folder: RunFolder) -> Path | None:
    """A private folder with each of the run's copies at its original path: ``<snapshot>/home/me/net.py``.

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
