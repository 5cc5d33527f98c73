"""Finds the run folders below any folder, of single runs and of jobs of sweeps; and the disk use of files."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run.folder import Folder, Inode
from manyheads.runner.run.ledger import JUDGED, Entry, Ledger
from manyheads.runner.run.run_folder import LEDGER, RunFolder

OUTPUTS = Path("outputs")
DEEPEST = 8  # levels below the named folder; outputs/sweeps/<date>/<time>/<job> has four
_SWEEP = {LEDGER, "multirun.yaml"}
_RUN = {"run.yaml", ".hydra"}
_MARKS = {*_SWEEP, *_RUN, JUDGED}


class Listing(NamedTuple):
    """The content of a folder. ``marks``: names that tell runs, sweeps and judgements; ``inner``: folders in it."""

    marks: Collection[str]
    inner: Sequence[str]


def listing(folder: str) -> Listing:
    """The content of a folder, without links; empty if it cannot be read, such as that of somebody else."""
    names, inner = set(), []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            names.add(entry.name)
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                inner.append(entry.name)
    return Listing(names & _MARKS, sorted(inner))


def find_runs(folder: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yields each run folder below ``folder``, and the folder of its sweep if it is a job of one. Follows no links.

    The hundreds of runs of a judgement or a tuning are found only if its own folder is named.

    Raises ConfigurationError if the folder does not exist.
    """
    return ((Path(path), None if sweep is None else Path(sweep)) for path, sweep in walk(folder, listing))


def walk(folder: Path, listing: Callable[[str], Listing]) -> Iterator[tuple[str, str | None]]:
    """As ``find_runs``, with paths as texts. ``listing``: reads a folder."""
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder. Name one with runs in it, such as {OUTPUTS}.")
    return _below(str(folder), None, DEEPEST, listing)


def _below(
    folder: str, sweep: str | None, depth: int, listing: Callable[[str], Listing]
) -> Iterator[tuple[str, str | None]]:
    marks, inner = listing(folder)
    if JUDGED in marks and depth < DEEPEST:
        return
    if not _SWEEP.isdisjoint(marks):
        sweep = folder
    elif not _RUN.isdisjoint(marks):
        yield folder, sweep
        return
    for name in inner if depth else ():
        yield from _below(os.path.join(folder, name), sweep, depth - 1, listing)


def run_folder(path: str) -> RunFolder:
    """The folder of a run. Raises ConfigurationError if it holds no run, or a sweep."""
    folder = RunFolder(path)
    if not folder.path.is_dir():
        raise ConfigurationError(f"{folder} is not a folder. `{invocation.command('list')}` lists the folders of runs.")
    if Ledger(folder.path).exists() or (folder.path / "multirun.yaml").exists():
        raise ConfigurationError(
            f"{folder} is a sweep. Name one of its runs; `{invocation.command('list', folder)}` lists them."
        )
    if not folder.holds_run():
        raise ConfigurationError(f"{folder} holds no run: {folder.config.name} does not exist.")
    return folder


def jobs_of(sweep: str | Path) -> dict[str, Entry]:
    """The jobs of a sweep from its ledger, by the paths of their folders; empty if there is no readable ledger."""
    ledger = Ledger(sweep)
    try:
        return {os.path.normpath(ledger.sweep / entry.folder): entry for entry in ledger.entries()}
    except ConfigurationError:
        return {}


def divided(words: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The ``key=value`` and the folders in what was typed; outputs/ if none is named."""
    pairs = [word for word in words if "=" in word and not Path(word).is_dir()]
    return pairs, [Path(word) for word in words if word not in pairs] or [OUTPUTS]


def disk_use(path: Path) -> int:
    """Bytes of a file, or of all files below a folder. A file with several names counts once, symbolic links do not."""
    with Folder(path.parent) as above:
        statuses = [above.status(path.name)]
        with suppress(ConfigurationError, NotADirectoryError), above.child(path.name) as folder:
            statuses = [status for _, status in folder.walk()]
    return sum({Inode.of(status): status.st_size for status in statuses if S_ISREG(status.st_mode)}.values())
