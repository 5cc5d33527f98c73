"""What the ranks should do instead of training: a small file next to run.yaml, written by the parent."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.run_folder import RunFolder

FILE = "task.json"


@dataclass(frozen=True)
class ParityTask:
    """``baseline``: the run folder whose steps are held against these; None for the baseline itself.

    ``tolerance``: relative; ``trace``: whether the first step follows every module.
    """

    steps: int
    tolerance: float
    baseline: str | None = None
    trace: bool = True


def write_task(folder: RunFolder, task: ParityTask) -> None:
    """Must come after run.yaml and before the ranks."""
    make_folder(folder.parity)
    folder.write_json(folder.parity / FILE, asdict(task))


def read_task(folder: RunFolder) -> ParityTask:
    """The folder's task."""
    return ParityTask(**json.loads(read_bytes(folder.parity / FILE)))


@dataclass(frozen=True)
class StepFiles:
    """Where the baseline leaves what the others need; large, and removed at the end."""

    folder: Path

    @classmethod
    def of(cls, baseline: RunFolder) -> "StepFiles":
        return cls(baseline.parity / "steps")

    @property
    def start(self) -> Path:
        """The state before the first step."""
        return self.folder / "start.pt"

    @property
    def trace(self) -> Path:
        """What each module did in the first step."""
        return self.folder / "trace.pt"

    def step(self, number: int) -> Path:
        """What the step with this number, counted from 0, computed."""
        return self.folder / f"step_{number}.pt"
