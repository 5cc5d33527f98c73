"""The task of ranks that time updates: a small file next to run.yaml, written by the parent; and their marks."""

from pathlib import Path

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder

FILE = "judge.json"
BEGAN, ENDED = "judge.began", "judge.ended"  # empty files, whose modification times come from the file system's clock
BATCH_STATISTICS = "batch_statistics"  # a fact of an arm: whether it has BatchNorm over each rank's own samples
WARM_UP = 5  # updates before the timed ones


def write_task(folder: RunFolder, updates: int) -> None:
    """Ask for the time of ``updates`` updates, after WARM_UP others; after run.yaml, before the ranks start."""
    folder.write_json(folder.path / FILE, {"updates": updates})


def read_task(folder: RunFolder) -> int:
    """The number of updates to time."""
    return int(read_json(folder.path / FILE)["updates"])


def seconds_between(began: Path, ended: Path) -> float | None:
    """The seconds between two marks, by the file system's clock; None if one is missing."""
    try:
        return (ended.stat().st_mtime_ns - began.stat().st_mtime_ns) / 1e9
    except FileNotFoundError:
        return None
