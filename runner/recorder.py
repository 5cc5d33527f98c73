"""What rank 0 writes while a run goes on: steps.csv, epochs.csv and TensorBoard's files."""

import csv
import io
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from runner.run_folder import RunFolder

STEP_COLUMNS = ("epoch", "step", "samples", "loss", "lr", "grad_norm", "samples_per_second", "data_fraction")
EPOCH_COLUMNS = (
    "epoch",
    "step",
    "started",
    "train_seconds",
    "train_loss",
    "train_acc1",
    "train_acc5",
    "val_seconds",
    "val_loss",
    "val_acc1",
    "val_acc5",
    "val_samples",
    "samples_per_second",
    "peak_memory_mb",
)


class Recorder:
    """Writes nothing: what every rank but the first has. ``Files`` is the other one."""

    def step(self, row: dict[str, Any]) -> None:
        """One row of steps.csv."""

    def epoch(self, row: dict[str, Any]) -> None:
        """One row of epochs.csv."""

    def position(self) -> dict[str, int]:
        """Everything so far is on the disk; the sizes of the tables then."""
        return {}

    def close(self) -> None: ...


class Files(Recorder):
    """``position``: where a checkpoint left the tables; rows after it are cut. ``step``: its update."""

    def __init__(self, folder: RunFolder, *, position: dict[str, int], step: int):
        self._steps = Table(folder.steps, STEP_COLUMNS, position.get("steps", 0))
        self._epochs = Table(folder.epochs, EPOCH_COLUMNS, position.get("epochs", 0))
        self._board = SummaryWriter(str(folder.tensorboard), purge_step=step + 1, flush_secs=1)

    def step(self, row: dict[str, Any]) -> None:
        self._steps.append(row)
        for name in ("loss", "lr", "grad_norm", "samples_per_second"):
            self._board.add_scalar(f"train/{name}", row[name], row["step"])

    def epoch(self, row: dict[str, Any]) -> None:
        self._epochs.append(row)
        for split in ("train", "val"):
            for name in ("loss", "acc1", "acc5"):
                if row[f"{split}_{name}"] is not None:
                    self._board.add_scalar(f"epoch/{split}_{name}", row[f"{split}_{name}"], row["step"])

    def position(self) -> dict[str, int]:
        self._board.flush()
        return {"steps": self._steps.size(), "epochs": self._epochs.size()}

    def close(self) -> None:
        self._steps.close()
        self._epochs.close()
        self._board.close()


class Table:
    """A CSV file that grows by whole rows, each on the disk at once. ``size``: bytes to keep of what is there."""

    def __init__(self, path: Path, columns: tuple[str, ...], size: int):
        self._columns = columns
        self._file = open(path, "a", newline="")  # noqa: SIM115
        self._file.truncate(size)
        self._writer = csv.writer(self._file, lineterminator="\n")
        if size == 0:
            self._writer.writerow(columns)
            self._file.flush()

    def append(self, row: dict[str, Any]) -> None:
        self._writer.writerow([_cell(row[name]) for name in self._columns])
        self._file.flush()

    def size(self) -> int:
        """The file's size in bytes."""
        return self._file.seek(0, io.SEEK_END)

    def close(self) -> None:
        self._file.close()


def _cell(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else value
