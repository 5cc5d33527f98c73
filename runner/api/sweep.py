"""``manyheads.sweep``: a sweep from Python."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from manyheads.runner.api.child import call
from manyheads.runner.api.run import as_typed
from manyheads.runner.config.arguments import quoted, typed_values
from manyheads.runner.config.new_folder import SWEEP_DIR, named_folder, new_folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class Row:
    """One job of a sweep. ``overrides``: its own, by key; ``reason``: why it failed or was skipped, or empty."""

    job: int
    overrides: dict[str, Any]
    status: str
    reason: str
    metrics: dict[str, Any]
    folder: Path


class Sweep(Sequence[Row]):
    """The jobs of a sweep in order, including those that failed or were skipped. ``folder``: that of the sweep."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).resolve()
        ledger = Ledger(self.folder)
        self._rows = [self._row(entry) for entry in (ledger.entries() if ledger.exists() else ())]

    def _row(self, entry: Any) -> Row:
        folder = RunFolder(self.folder / entry.folder)
        values = typed_values(entry.overrides)
        metrics = (folder.read_result() or {}).get("metrics") or {}
        return Row(entry.job, values, entry.state, entry.reason or "", metrics, folder.path)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<sweep of {len(self)} jobs in {self.folder}>"

    def to_pandas(self) -> Any:
        """A DataFrame with one row per job: swept values, status, metrics, folder. Needs pandas."""
        import pandas

        return pandas.DataFrame(
            [
                {"job": row.job, **row.overrides, "status": row.status, **row.metrics, "folder": str(row.folder)}
                for row in self
            ]
        )


def sweep(overrides: Sequence[str], *, conf: str | Path | None = None) -> Sweep:
    """Run every combination like ``manyheads train -m <overrides>``, in a separate process.

    overrides: as on the command line. conf: a folder with your own configs, like --config-dir.

    A job that fails is a row with that status. Raises ConfigurationError if the sweep as a whole is refused, and
    KeyboardInterrupt if it was stopped; ``manyheads resume`` continues it.
    """
    line = as_typed(overrides, conf)
    folder = new_folder(line.overrides, SWEEP_DIR)
    line = line if named_folder(line.overrides, SWEEP_DIR) else line.adding(f"{SWEEP_DIR}{quoted(folder.resolve())}")
    try:
        ended = call("train", "-m", *line.arguments)
    finally:
        with suppress(OSError):  # it holds jobs, unless the sweep was refused
            folder.rmdir()
    found = Sweep(folder)
    if not found:  # else a job's failure is in its row
        ended.check()
    return found
