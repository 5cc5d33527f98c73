"""The base class of callbacks: user code called at fixed points of a run."""

import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.runner.run.json_types import Numbers, ResultJson

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn


@dataclass(frozen=True)
class RunContext:
    """Describes a run to its callbacks.

    ``model``: the user's model during training; read it, but call it only within ``sampling``::

        with run.sampling() as model:
            images = model(noise)

    There it is in evaluation mode, without gradients, in the run's precision, and torch's, Python's and NumPy's
    generators start from ``seed``, which is 0 by default. After it all is as before: the run's weights are those of a
    run without the callback. The weights are those of the moment: in ``on_evaluation``, the ones that were evaluated.
    Where each rank has a part of the model (parallel=fsdp, tensor, pipeline), ``model`` takes one argument, the inputs
    of a batch, and all ranks must call it equally often: the callback must have ``every_rank``.

    ``step``: number of updates made before this session, if the run was resumed. ``task``: defines what a batch means.
    ``gather``: returns the list of all ranks' values, in rank order, on every rank; values must be picklable, and the
    callback must have ``every_rank``. ``picture``: records a PNG under a name, with the number of updates so far; rank
    0 only. ``say``: prints a line on the terminal and in run.log; rank 0 only.
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
    sampling: Callable[..., AbstractContextManager[Any]] = nullcontext


def file_name(name: str, split: str) -> str:
    """The name of a file about the evaluation of a split: unchanged for "val", otherwise with the split's name."""
    return name if split == "val" else f"{name}_{split}"


def png(figure: "Figure") -> bytes:
    """A figure of matplotlib as the content of a PNG file, for ``RunContext.picture``."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


class Callback:
    """Base class of callbacks, the entries of ``callbacks`` in the run config; override the methods that you need.

    ``every_rank``: whether every rank has an instance; otherwise only rank 0 has one, which sees only rank 0's part of
    an evaluation. An exception in a callback ends the run, like an error in the model.
    """

    every_rank = False

    def on_start(self, run: RunContext) -> None:
        """Called when training or evaluation starts or is resumed."""

    def on_update(self, step: int) -> None:
        """Called after update ``step``, counted from 1."""

    def on_epoch(self, row: Numbers) -> None:
        """Called after an epoch with its row of epochs.csv, by column; None for what was not measured.

        Times are in seconds, ``peak_memory_mb`` is in 2**20 bytes. The same on all ranks except for timings.
        """

    def on_evaluation_batch(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        """Called after a batch of N samples was evaluated.

        ``outputs``: the model's outputs, on its device; for classification a float tensor of shape (N, classes).
        ``batch``: a ``Batch``, whose ``content`` is the collated samples. ``ids``: N indices in the data set.
        """

    def on_evaluation(self, split: str, samples: Any) -> None:
        """Called after a complete evaluation of "val" or "test". ``samples``: the data set."""

    def on_checkpoint(self, path: Path) -> None:
        """Called after a checkpoint was written. ``path``: last.pt, or the folder of a sharded checkpoint."""

    def on_end(self, result: ResultJson) -> None:
        """Called when the run ends without an error. ``result``: the content of result.json on rank 0, else empty."""

    def close(self) -> None:
        """Release resources; always called last, however the run ended."""
