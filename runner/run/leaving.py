"""Which files of a run folder may leave it: the one list for object storage, and back from there, and for trackers.

Keys are only in logs/ and state/, and in hidden files, of which nothing leaves that has no line here.
"""

from collections.abc import Iterator
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from manyheads.runner.run.files import matching

KEY = "nodes.key"  # in logs/: with it, any machine can join the run
STATE = "state"  # where Kubernetes' and SkyPilot's machines keep their key, and would look for what is trusted


class To(IntEnum):
    """Where a file may be sent: each includes those above it."""

    NOWHERE = 0
    STORAGE = 1
    TRACKERS = 2


# By patterns of paths, whose * also stands for folders; the first one counts.
FILES = {
    **dict.fromkeys(("*.key", "*.aside", "*.aside/*", f"{STATE}/*"), To.NOWHERE),
    **dict.fromkeys(("logs/heartbeat", "logs/.node*", "logs/.meeting-*"), To.NOWHERE),
    **dict.fromkeys(("logs/*.log", "logs/*.out", "logs/*.json", "logs/nccl_rank_*", ".hydra/*.yaml"), To.STORAGE),
    **dict.fromkeys(("logs/*", ".*", "*/.*"), To.NOWHERE),
    **dict.fromkeys(("run.yaml", "provenance.json", "code.diff", "model.json", "result.json"), To.TRACKERS),
    **dict.fromkeys(("steps.csv", "epochs.csv", "gpu.csv", "host.csv", "run.log", "pictures/*.png"), To.TRACKERS),
    **dict.fromkeys(("evaluations.csv", "samples.csv", "skipped.csv", "spikes.csv", "code/*"), To.STORAGE),
    **dict.fromkeys(("threads.json", "crowding.json"), To.STORAGE),
    **dict.fromkeys(("checkpoints/*", "tensorboard/*", "trackers/*", "parity/*", "corruption/*"), To.STORAGE),
    "*": To.STORAGE,  # what callbacks write, the user's own too; a checkpoint to trackers if the user sets it
}


def may_leave(path: str | PurePath, to: To = To.STORAGE) -> bool:
    """Whether a file, by its path in the run folder, may be copied elsewhere, or back from there."""
    return next(allowed for pattern, allowed in FILES.items() if fnmatchcase(str(path), pattern)) >= to


def tracked(folder: Path) -> Iterator[Path]:
    """The paths of a run's files that trackers get; some may be missing."""
    for path in (PurePath(pattern) for pattern, allowed in FILES.items() if allowed == To.TRACKERS):
        yield from matching(folder / path.parent, path.name) if "*" in path.name else [folder / path]
