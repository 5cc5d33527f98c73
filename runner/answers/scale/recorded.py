"""Reads from a recorded run what a measurement of some seconds cannot tell: its checkpoints, and its ranks' spread."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Annotated

from manyheads.runner.answers.scale.simulator.replay import Assumptions, harmonic
from manyheads.runner.checkpoint.retention import EVERY
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.slow_ranks import OWN


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints that a recorded run wrote."""

    bytes: Annotated[int, "of the last one"]
    sharded: Annotated[bool, "whether each rank writes its part, or one rank everything"]
    seconds: Annotated[float, "for which the run's updates waited for checkpoints, per update"]
    batch: Annotated[int, "samples of an update of the run"]
    by_epoch: Annotated[bool, "whether they are written by the number of epochs, rather than of updates"]
    share: Annotated[float, "fraction of a checkpoint that a machine of the run wrote"]

    def per_update(self, *, devices: int, per_machine: int, batch: int) -> float:
        """Seconds per update on other devices. ``batch``: samples of an update.

        A machine takes as long as before for each byte, and machines write at the same time. An epoch of larger updates
        has fewer of them.
        """
        share = min(devices, per_machine) / devices if self.sharded else 1.0
        rarer = batch / self.batch if self.by_epoch else 1.0
        return self.seconds * share / self.share * rarer


@dataclass(frozen=True)
class Recorded:
    """The measurements in a run's own record. ``spread``: as in Assumptions; None if its ranks did not record it."""

    checkpoints: Checkpoints | None = None
    spread: float | None = None

    @classmethod
    def of(cls, folder: Path | None, run: RunConfig) -> "Recorded":
        """The record of the run ``run`` in its folder; an empty one if there is no folder, or it has not ended."""
        if folder is None or (result := RunFolder(folder).read_result()) is None:
            return cls()
        return cls(_checkpoints(RunFolder(folder), run, result), _spread(result.get("rank_seconds") or {}))

    @property
    def assumptions(self) -> Assumptions:
        """The usual assumptions, with the spread of the run's own ranks if that is larger."""
        usual = Assumptions()
        return usual if self.spread is None else Assumptions(spread=max(self.spread, usual.spread))


def _checkpoints(folder: RunFolder, run: RunConfig, result: ResultJson) -> Checkpoints | None:
    """The checkpoints of a run; None if it wrote none, or did not record how long that took."""
    updates, spent = result.get("steps") or 0, (result.get("time") or {}).get("checkpoint") or 0.0
    size = _bytes(folder.last_checkpoint)
    if not (updates > 0 and size and 0 < spent < math.inf):
        return None
    is_sharded = folder.last_checkpoint.is_dir()
    return Checkpoints(
        size,
        is_sharded,
        spent / updates,
        run.data.batch_size,
        by_epoch=EVERY.fullmatch(str(run.checkpoint.every)) is not None,
        share=run.launcher.nproc_per_node / run.launcher.ranks if is_sharded else 1.0,
    )


def _bytes(checkpoint: Path) -> int:
    """The bytes of a checkpoint, a file or a folder of shards; 0 if there is none."""
    with suppress(OSError, ConfigurationError):  # a link is not followed
        status = checkpoint.lstat()
        if S_ISREG(status.st_mode):
            return status.st_size
        with Folder(checkpoint) as held:
            return sum(status.st_size for _, status in held.walk() if S_ISREG(status.st_mode))
    return 0


def _spread(seconds: Mapping[str, Sequence[float]]) -> float | None:
    """How much longer the slowest rank took than the mean one, as the parameter of the distribution that is assumed.

    ``seconds``: of each rank, by part. The mean of the largest of n exceeds their mean by ``harmonic(n) - 1`` of it.
    """
    measured = [seconds[part] for part in OWN if part in seconds]
    passes = seconds.get("compute") or []
    if len(passes) < 2 or any(len(values) != len(passes) for values in measured):
        return None
    own_seconds, mean = [sum(rank) for rank in zip(*measured, strict=True)], sum(passes) / len(passes)
    spread = (
        (max(own_seconds) - sum(own_seconds) / len(own_seconds)) / mean / (harmonic(len(own_seconds)) - 1)
        if mean > 0
        else math.nan
    )
    return spread if math.isfinite(spread) else None
