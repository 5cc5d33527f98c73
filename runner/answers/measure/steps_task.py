"""Files between the parent and the ranks of a parity run: the work to do instead of training, and the findings."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.run_folder import RunFolder

FILE = "task.json"


@dataclass(frozen=True)
class ParityTask:
    """The steps to take. ``baseline``: the run folder that they are compared with; None for the baseline itself.

    ``tolerance``: relative; ``trace``: whether every module is traced in the first step; ``counts_casts``: whether
    casts from double precision to a lower one are counted.
    """

    steps: int
    tolerance: float
    baseline: str | None = None
    trace: bool = True
    counts_casts: bool = False


def write_task(folder: RunFolder, task: ParityTask) -> None:
    """Write the task, after run.yaml and before the ranks start."""
    make_folder(folder.parity)
    folder.write_json(folder.parity / FILE, asdict(task))


def read_task(folder: RunFolder) -> ParityTask:
    """The folder's task."""
    return ParityTask(**read_json(folder.parity / FILE))


@dataclass(frozen=True)
class StepFiles:
    """Files of the baseline that the other strategies read; large, and removed at the end."""

    folder: Path

    @classmethod
    def of(cls, baseline: RunFolder) -> "StepFiles":
        """The files in the folder of the baseline's run."""
        return cls(baseline.parity / "steps")

    @property
    def start(self) -> Path:
        """The state before the first step."""
        return self.folder / "start.pt"

    @property
    def trace(self) -> Path:
        """The file with the trace of each module in the first step."""
        return self.folder / "trace.pt"

    def step(self, number: int) -> Path:
        """The file with the values of the step with this number, counted from 0."""
        return self.folder / f"step_{number}.pt"


class LargestDifference(TypedDict):
    """The difference of a tensor from the baseline's. ``kind``: loss, gradient, weight or buffer.

    ``largest``: relative; ``step``: its step, -1 before the first; ``first``: the first step at which it exceeded the
    tolerance.
    """

    kind: str
    name: str
    largest: float
    step: int
    first: NotRequired[int]


class Culprit(TypedDict):
    """The first module that computed a different output from the same input.

    ``reason``: statistics, random, buffer, or batch if the cause is unknown; ``buffers``: its own that differ;
    ``alike``: how many modules of the model have the same trait; ``number``: its position in the order of calls.
    """

    module: str
    kind: str
    reason: str
    buffers: list[str]
    alike: int
    number: NotRequired[int]
    rank: NotRequired[int]


class InitialDifference(TypedDict):
    """Names of a rank's tensors that were not built like the baseline's."""

    rank: int
    parameter: list[str]
    buffer: list[str]


class ParityFindings(TypedDict, total=False):
    """The results of the steps; the first group is of every run, the second of a baseline, the last of the others.

    ``unused``: parameters that never had a gradient; ``cut``: the loss of a whole batch, and of its parts; ``initial``:
    tensors that differed from the baseline's before the first step; ``apart``: weights that differed between ranks;
    ``loss``: the baseline's and this strategy's, where they first differ; ``factor``: the ratio of their gradients.
    ``differences`` are from the baseline; its own, before the first step, from the module as its constructor returned
    it.
    """

    ranks: int
    steps: int
    precision: str

    unused: list[str]
    finite: bool
    cut: tuple[float, float] | None
    differences: list[LargestDifference]

    initial: list[InitialDifference]
    apart: list[str]
    culprit: Culprit | None
    outputs_agree: bool | None
    loss: list[float] | None
    factor: float | None
