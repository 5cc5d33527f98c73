"""Where a past run's packages are imported from: where it was started, or else its copies; never by chance."""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from importlib.machinery import PathFinder
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.machine.ownership import is_mine
from manyheads.runner.option.locate import STARTED_IN
from manyheads.runner.option.tree import Section, files_named, packages_named
from manyheads.runner.provenance.kept_files import snapshot
from manyheads.runner.provenance.own_code import own_files
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder


def is_trusted_place(path: Path) -> bool:
    """Whether what the user's own runs name may be looked up there: only the user writes to it, or trusts it."""
    return is_mine(path) or seal.is_own_place(path)


def open_place(config: Section) -> Path | None:
    """Where others can replace a file of the user's that a config names or imports; None if they can't.

    A file, its folder, since Python looks there for what the file imports, or the folder of its bytecode.
    """
    files = [*(file.path for file in files_named(config).values()), *own_files(config)]
    places = (
        candidate
        for path in dict.fromkeys(files)
        if path.suffix == ".py"
        for candidate in (path.parent, path, path.parent / "__pycache__")
    )
    return next((candidate for candidate in places if candidate.exists() and not is_trusted_place(candidate)), None)


def refuse_open_place(config: Section) -> None:
    """Raises ConfigurationError if others can replace a file of the user's that a config names or imports."""
    if (opening := open_place(config)) is not None:
        raise ConfigurationError(
            f"others can write to {opening}, so the code that this run imports from there may not be yours. "
            f"{how_to_trust(opening)}."
        )


def how_to_trust(opening: Path) -> str:
    """What to do if the user trusts a place that others can write to."""
    folder = opening if opening.is_dir() else opening.parent
    return f"If you trust everything in {folder}, run once: {invocation.command('trust', folder)}"


def find_where_started(*folders: RunFolder) -> None:
    """Import the user's packages from where the first of these runs was started, and from nowhere else.

    If that directory no longer exists, or others can write to it or to a package there, from the run's copies. Runs
    that the user neither recorded nor trusts are ignored.
    """
    for folder in folders:
        if folder.is_own():
            os.environ[STARTED_IN] = _started_in(folder)
            if os.environ[STARTED_IN]:
                return


@contextmanager
def as_started(folder: RunFolder) -> Iterator[None]:
    """A context with ``find_where_started``, for a process that also does other things."""
    before = os.environ.get(STARTED_IN)
    find_where_started(folder)
    try:
        yield
    finally:
        os.environ.pop(STARTED_IN, None)
        if before is not None:
            os.environ[STARTED_IN] = before


def _started_in(folder: RunFolder) -> str:
    """The folder to import the run's packages from; "" if there is none that is certain to be the user's."""
    try:
        directory = str(read_json(folder.provenance).get("directory"))
        if not folder.owns(directory=directory):
            return ""
    except FileNotFoundError:  # it was planned, and never started
        directory = next((recorded for above in folder.path.parents if (recorded := directory_of(Ledger(above)))), "")
    except (OSError, ConfigurationError):
        return ""
    if not directory:
        return ""
    config, opening = folder.read_config(), Path(directory)
    imports_packages = any(PathFinder.find_spec(package) is None for package in packages_named(config))
    if is_trusted_place(opening):
        os.environ[STARTED_IN] = directory  # where ``open_place`` looks packages up
        if not imports_packages or (inside := open_place(config)) is None:
            return directory
        opening = inside
    taken = snapshot(folder) if imports_packages else None
    copied = taken and taken / Path(directory).relative_to("/")
    is_copied = copied is not None and copied.is_dir()
    if imports_packages:
        exists = opening.exists()
        reason = f"others can write to {opening}" if exists else "it no longer exists"
        instead = "its copies are used" if is_copied else "it has no copies"
        remedy = f". {how_to_trust(opening)}" if exists and not is_copied else ""
        print(
            f"{directory}, where the run was started, is not used, since {reason}: {instead}{remedy}", file=sys.stderr
        )
    return str(copied) if is_copied else ""


def directory_of(ledger: Ledger) -> str:
    """The directory in which the user's own sweep was started; "" if there is none, or it is somebody else's."""
    if not ledger.exists() or not seal.is_own(ledger.sweep, sealed := ledger.sealed_part()):
        return ""
    return str(ledger.about(sealed).get("directory", ""))


@contextmanager
def in_directory_of(ledger: Ledger) -> Iterator[None]:
    """A context in the directory where the user's own sweep was started: names in its command are relative to it.

    Raises ConfigurationError if it no longer exists, or if others can write to it.
    """
    directory = directory_of(ledger)
    if not (directory and is_trusted_place(Path(directory))):
        exists = bool(directory) and os.path.isdir(directory)
        raise ConfigurationError(
            f"{RunFolder(ledger.sweep)} was started in {directory or 'an unknown directory'}, "
            + (
                "where others can write, so the names in its command are not looked up there. If you trust everything "
                f"in it, run once: {invocation.command('trust', directory)}"
                if exists
                else "which no longer exists. Restore it: the names in its command are relative to it."
            )
        )
    with chdir(directory):
        yield
