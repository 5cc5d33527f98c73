"""A callback: a user's own code at the turns of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class RunContext:
    """What a callback knows of its run. ``model``: the user's own, as it is trained; to be read, not called.

    ``step``: updates that were made before, of a run that is resumed. ``task``: what a batch means; ``gather``: gives
    a picklable value of each rank on every rank, for callbacks that every rank has; ``picture``: shows a PNG wherever
    the run is recorded, with its name and the number of updates so far, when rank 0 calls it; ``say``: shows a line on
    the terminal and in run.log, when rank 0 calls it.
    """

    folder: Path
    config: dict[str, Any]
    model: "nn.Module"
    rank: int
    world_size: int
    step: int
    task: Any = None
    gather: Callable[[Any], list[Any]] = lambda value: [value]
    picture: Callable[[str, bytes, int], None] = lambda name, png, step: None
    say: Callable[[str], None] = lambda line: None


def file_name(name: str, split: str) -> str:
    """What a file about the evaluation of a split is called: plainly for "val", else with the split's name."""
    return name if split == "val" else f"{name}_{split}"


class Callback:
    """The base of all callbacks, each an entry of ``callbacks`` in the run config; override what you need.

    ``every_rank``: whether each rank has one; else rank 0 alone, which sees its own share of an evaluation only. What a
    callback raises ends the run, as an error in the model does.
    """

    every_rank = False

    def on_start(self, run: RunContext) -> None:
        """Training or evaluation begins, or is resumed."""

    def on_update(self, step: int) -> None:
        """Update ``step``, counted from 1, was made."""

    def on_epoch(self, row: dict[str, Any]) -> None:
        """An epoch is over: its row of epochs.csv, the same on all ranks but for timings."""

    def on_evaluation_batch(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        """A batch was evaluated. ``outputs``: the model's; ``ids``: indices of its samples in the data set."""

    def on_evaluation(self, split: str, samples: Any) -> None:
        """All of "val" or "test" was evaluated; not called where that was interrupted. ``samples``: its data set."""

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint was written."""

    def on_end(self, result: dict[str, Any]) -> None:
        """The run ended without an error. ``result``: what rank 0 knows of result.json; empty on the others."""

    def close(self) -> None:
        """Give back what is held; called last, however the run ended."""
