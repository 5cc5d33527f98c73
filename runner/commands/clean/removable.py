"""``clean``: which runs, or which of their checkpoints, can be removed, and why."""

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from manyheads.runner.config.lookup import own_sections
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared_class
from manyheads.runner.records.find import disk_use
from manyheads.runner.records.run_summary import Summary, summaries
from manyheads.runner.records.select import ordered
from manyheads.runner.run.checkpoint_places import folders
from manyheads.runner.run.files import is_locked, matching
from manyheads.runner.run.folder import Folder, Inode
from manyheads.runner.run.frozen import read_frozen
from manyheads.runner.run.run_folder import LEDGER, RunFolder
from manyheads.runner.run.seal import NAME as SEAL

HOURS = {"h": 1, "d": 24, "w": 7 * 24}
IN_RUN = {
    *("run.yaml", "provenance.json", "code.diff", "run.log", "console.log", "logs", "steps.csv", "epochs.csv"),
    *("gpu.csv", "host.csv", "tensorboard", "checkpoints", "parity", "result.json", ".hydra", "checks", "code"),
    *("evaluations.csv", "samples.csv", "skipped.csv", "spikes.csv", "model.json", "trackers", "pictures", "profile"),
    *("corruption", SEAL),
}
IN_SWEEP = {
    *(LEDGER, SEAL, "multirun.yaml", "run.log", "trackers.lock", "study.log"),
    "optimization_results.yaml",
}
_ASIDE = re.compile(r"comparison\.\w+|\w+\.log|\..*\.aside")  # other files that a run or a sweep leaves


@dataclass(frozen=True)
class Removable:
    """A folder to be removed; or, if there are ``files``, these checkpoints of a run. ``size``: bytes that this frees.

    ``inode``: of the folder as it was examined. ``runs``: those in it that match the rules.
    """

    path: Path
    inode: Inode
    why: str
    runs: tuple[Summary, ...]
    size: int
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Rules:
    """Selects runs to remove: those that all given rules select.

    ``keep_best``: all but this many best by each metric. ``hours``: those unchanged for this long. ``failed``: those
    that failed. ``checkpoints``: remove only their checkpoints.
    """

    keep_best: int | None = None
    hours: float | None = None
    failed: bool = False
    checkpoints: bool = False

    def check(self) -> None:
        """Raises ConfigurationError if no rule selects runs, and for invalid numbers."""
        if self.keep_best is None and self.hours is None and not (self.failed or self.checkpoints):
            raise ConfigurationError(
                "clean: no rule selects the runs to remove. Add --failed, --older 30d or --keep-best 5; "
                "--checkpoints removes only their checkpoints."
            )
        if self.keep_best is not None and self.keep_best < 0:
            raise not_allowed("--keep-best", self.keep_best, "an integer of at least 0")


def age(text: str) -> float:
    """The hours in a value of ``--older``, such as 12h, 30d or 2w. Raises ConfigurationError."""
    if match := re.fullmatch(r"(\d+)([hdw])", text):
        return int(match[1]) * HOURS[match[2]]
    raise not_allowed("--older", text, "a number with h, d or w, such as 30d")


def find_removable(folder: Path, rules: Rules) -> tuple[list[Removable], list[str]]:
    """What can be removed below ``folder``, and a sentence for each run or sweep that matches but must be kept.

    Raises ConfigurationError for invalid rules, and if the folder does not exist.
    """
    rules.check()
    runs = list(summaries(folder))
    best = _best(runs, rules.keep_best or 0)
    fit = {run.folder.path: why for run in runs if run.folder.path not in best and (why := _why(run, rules))}
    removable, staying = [], []
    for sweep, group in groupby(runs, key=lambda run: run.sweep):
        members = list(group)
        for runs_of_one in [[run] for run in members] if sweep is None or rules.checkpoints else [members]:
            chosen = [run for run in runs_of_one if run.folder.path in fit]
            path = sweep.resolve() if sweep is not None and not rules.checkpoints else runs_of_one[0].folder.path
            if not chosen or not path.is_relative_to(folder.resolve()):
                continue
            with Folder(path) as held:
                inode = held.inode  # only the folder that was examined may be removed
            if reason := _must_stay(path, runs_of_one, chosen, rules):
                staying.append(f"{RunFolder(path)} stays: {reason}")
                continue
            files = tuple(removable_checkpoints(chosen[0])) if rules.checkpoints else ()
            kept = [file for file in _checkpoint_files(chosen[0].folder) if file not in files]
            size = _freed(files, kept) if rules.checkpoints else disk_use(path)
            if files or not rules.checkpoints:
                why = ", ".join(dict.fromkeys(fit[run.folder.path] for run in chosen))
                removable.append(Removable(path, inode, why, tuple(chosen), size, files))
    return removable, staying


def removable_checkpoints(run: Summary) -> Iterator[Path]:
    """A run's checkpoints that are needed neither to evaluate its best weights nor to resume it if it is unfinished."""
    files = _checkpoint_files(run.folder)
    has_best = bool(files) and run.folder.best_checkpoint in files  # there are none if the folder is a link
    for path in files:
        is_needed = path == run.folder.best_checkpoint or (
            path == run.folder.last_checkpoint and not (has_best and run.status == "completed")
        )
        if not is_needed:
            yield path


def _checkpoint_files(folder: RunFolder) -> list[Path]:
    if folder.checkpoints.is_symlink() or not folder.checkpoints.is_dir():
        return []
    files = [path for path in matching(folder.checkpoints, "*.pt") if path.is_file()]
    return sorted([*files, *folders(folder.checkpoints, "step"), *folders(folder.checkpoints, "best")])


def _freed(files: Sequence[Path], kept: Sequence[Path]) -> int:
    """Bytes that removing ``files`` frees: the newest step_*.pt is a hard link to last.pt, best_* to a step's files."""
    held = {status.st_ino for path in kept for status in _inside(path)}
    sizes = {status.st_ino: status.st_size for path in files for status in _inside(path)}
    return sum(size for inode, size in sizes.items() if inode not in held)


def _inside(path: Path) -> list[os.stat_result]:
    """The status of a file, or of all files in a checkpoint's folder."""
    return [file.lstat() for file in (matching(path, "*") if path.is_dir() else [path])]


def _why(run: Summary, rules: Rules) -> str:
    """The reasons why a run matches the rules; empty if it does not."""
    reasons = []
    if rules.failed:
        if run.status != "failed":
            return ""
        reasons.append("failed")
    if rules.hours is not None:
        if (hours := (time.time() - run.changed) / 3600) < rules.hours:
            return ""
        reasons.append(f"{hours / 24:.0f} days old" if hours >= 48 else f"{hours:.0f} hours old")
    if rules.keep_best is not None:
        reasons.append(f"not among the best {rules.keep_best}")
    return ", ".join(reasons) or run.status


def _best(runs: Sequence[Summary], count: int) -> set[Path]:
    """The folders of the ``count`` best runs by each metric that runs are judged by."""
    folders: set[Path] = set()
    for metric in {run.metric.column for run in runs}:
        measured = [run for run in runs if run.metric.column == metric and run.measured is not None]
        if measured:
            folders |= {run.folder.path for run in ordered(measured, metric)[:count]}
    return folders


def _must_stay(path: Path, runs: Sequence[Summary], chosen: Sequence[Summary], rules: Rules) -> str:
    """Why a folder that matches must be kept; empty if it can be removed."""
    if any(run.status == "running" for run in runs) or _is_held(path / LEDGER):
        return "it is running"
    if any(run.status == "queued" for run in runs):
        return "it is in the queue"
    if len(chosen) < len(runs):
        return f"{len(runs) - len(chosen)} of the sweep's {len(runs)} jobs are to be kept"
    if planted := next((run.folder for run in chosen if _is_planted(run.folder)), None):
        return f"another user wrote the config in {planted.path.name}"
    if rules.checkpoints:
        return ""
    if stranger := next((run for run in runs if not _is_ours(run.folder)), None):
        return f"{stranger.folder.path.name} is not a manyheads run"
    if foreign := _foreign(path, {run.folder.path for run in runs}):
        return f"it contains {foreign}, which does not belong to the run; remove that, or the folder, yourself"
    return ""


def _is_ours(folder: RunFolder) -> bool:
    """Whether it is a run of this project, by its config."""
    return {"model.name", "parallel.name", "trainer.epochs"} <= read_frozen(_config(folder)).keys()


def _is_planted(folder: RunFolder) -> bool:
    """Whether config and folder belong to different users: many may write to one with the sticky bit, as /tmp has."""
    config = _config(folder)
    return os.path.lexists(config) and config.lstat().st_uid != folder.path.stat().st_uid


def _config(folder: RunFolder) -> Path:
    """The frozen config or, if that was refused, the composed one."""
    return folder.config if folder.config.exists() else folder.composed


def _foreign(folder: Path, runs: set[Path]) -> str | None:
    """The first file or folder, in one of the runs or between them, that no run and no sweep creates."""
    above = {parent for run in runs for parent in run.parents}
    names = IN_RUN | of_options() if folder in runs else IN_SWEEP
    with Folder(folder) as held:
        entries = held.list()
    for path, status in ((folder / name, status) for name, status in entries.items()):
        if path in runs or (path in above and not stat.S_ISLNK(status.st_mode)):
            if (name := _foreign(path, runs)) is not None:
                return name
        elif path.name not in names and not _ASIDE.fullmatch(path.name):
            return path.name
    return None


@cache
def of_options() -> frozenset[str]:
    """The names of files that this project's options leave in a run's folder, in addition to those of every run."""
    sections = ((group, section) for group in (*GROUPS, *ENTRIES) for section in own_sections(group))
    return frozenset(name for group, section in sections for name in declared_class(group, section).every("leaves"))


def _is_held(path: Path) -> bool:
    try:
        return is_locked(path)
    except (OSError, ConfigurationError):
        return False
