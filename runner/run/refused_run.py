"""Removes what was written for a run that was then refused, so that the corrected one may have the folder."""

from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from stat import S_ISDIR

from manyheads.runner.errors import Failure, Kind
from manyheads.runner.run import seal
from manyheads.runner.run.files import matching, remove, remove_if_empty
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.run_folder import RunFolder


def clear_refused(folder: RunFolder) -> None:
    """Remove what a refused run left, also one that its ranks refused before the first update; others stay."""
    was_started = folder.config.exists()
    if was_started and not was_refused_by_ranks(folder):
        return
    remove_unstarted(folder)
    if was_started and not folder.path.exists():  # its name was printed
        print(f"{folder} is removed: the run was refused before its first update", flush=True)


def remove_unstarted(folder: RunFolder) -> None:
    """Remove what was written for a run before its first update, and the folders that are then empty."""
    if folder.config.exists():
        _remove_frozen(folder)
    remove(folder.path / seal.NAME)
    remove(folder.composed.parent)
    for log in matching(folder.path, "*.log"):
        if not log.stat().st_size:
            remove(log)
    remove_if_empty(folder.path)
    for parent in takewhile(lambda ancestor: Path.cwd() in ancestor.parents, folder.path.parents):
        remove_if_empty(parent)


def was_refused_by_ranks(folder: RunFolder) -> bool:
    """Whether the run has ended before its first update, by a mistake of the user that a rank has found."""
    result = folder.read_result() or {}
    failure = Failure.from_json(result.get("error"))
    is_refusal = failure is not None and failure.kind is Kind.MISTAKE and result.get("steps") == 0
    return is_refusal and not folder.last_checkpoint.exists()


def _remove_frozen(run: RunFolder) -> None:
    """Remove what freezing, recording and starting a run wrote, but no folder that held older files."""
    frozen = run.config.stat().st_mtime_ns
    folders = (run.code, run.logs, run.tensorboard, run.pictures, run.checkpoints)
    new = [folder for folder in folders if _is_new(folder, since=frozen)]
    files = (run.provenance, run.code_diff, run.result, run.description, run.log, run.path / seal.NAME)
    for path in (*new, *files, *run.tables, run.gpu, run.host, run.threads, run.crowding, run.config):
        remove(path)


def _is_new(folder: Path, *, since: int) -> bool:
    """Whether all files in it were written since then, in nanoseconds since 1970."""
    with suppress(FileNotFoundError), Folder(folder) as held:
        return all(S_ISDIR(status.st_mode) or status.st_mtime_ns >= since for _, status in held.walk())
    return True
