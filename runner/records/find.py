"""Finds the run folders below any folder, of single runs and of jobs of sweeps; and the disk use of files."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run.folder import Folder, Inode
from manyheads.runner.run.ledger import JUDGED, Ledger
from manyheads.runner.run.run_folder import LEDGER, RunFolder

OUTPUTS = Path("outputs")
DEEPEST = 8  # levels below the named folder; outputs/sweeps/<date>/<time>/<job> has four
_SWEEP = {LEDGER, "multirun.yaml"}
_RUN = {"run.yaml", ".hydra"}


def find_runs(folder: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yields each run folder below ``folder``, and the folder of its sweep if it is a job of one. Follows no links.

    The hundreds of runs of a judgement or a tuning are found only if its own folder is named.

    Raises ConfigurationError if the folder does not exist.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder. Name one with runs in it, such as {OUTPUTS}.")
    yield from _below(folder, None, DEEPEST)


def _below(folder: Path, sweep: Path | None, depth: int) -> Iterator[tuple[Path, Path | None]]:
    names, inner = set(), []
    with suppress(OSError), os.scandir(folder) as entries:  # a folder of somebody else may be unreadable
        for entry in entries:
            names.add(entry.name)
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                inner.append(entry.name)
    if JUDGED in names and depth < DEEPEST:
        return
    if names & _SWEEP:
        sweep = folder
    elif names & _RUN:
        yield folder, sweep
        return
    for name in sorted(inner) if depth else ():
        yield from _below(folder / name, sweep, depth - 1)


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


def states(sweep: Path) -> dict[Path, str]:
    """The states of a sweep's jobs from its ledger, by folder; empty if there is no readable ledger."""
    ledger = Ledger(sweep)
    try:
        return {ledger.sweep / entry.folder: entry.state for entry in ledger.entries()}
    except ConfigurationError:
        return {}


def disk_use(path: Path) -> int:
    """Bytes of a file, or of all files below a folder. A file with several names counts once, symbolic links do not."""
    with Folder(path.parent) as above:
        statuses = [above.status(path.name)]
        with suppress(ConfigurationError, NotADirectoryError), above.child(path.name) as folder:
            statuses = [status for _, status in folder.walk()]
    return sum({Inode.of(status): status.st_size for status in statuses if S_ISREG(status.st_mode)}.values())
