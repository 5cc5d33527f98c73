"""What is measured: one row of the table each, and the sizes that all rows share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu.steps import Steps

OURS, TUTORIAL, BY_HAND, TIMM = "manyheads", "tutorial", "by hand", "timm"
AGAIN = "by hand, again"  # the same loop after ours: what differs between both is no difference between loops
READY, PHOTOS = "ready", "JPEG"  # batches that are there already; files that have to be decoded
NO_MODEL = "(loader)"
PRECISIONS = ("fp32", "tf32", "amp", "bf16")
BEST = "bf16"  # needs no gradient scaler, which waits for the GPU at each step
MOST_WORKERS = 32  # of any loop: more are no quicker, and fill the shared memory
WITHOUT_CONVOLUTIONS = ("vit_", "swin_")
WARM_UP = 5  # updates on one batch: algorithms are chosen, the model is compiled
OPENING = 12  # steps before the clock runs: an epoch's beginning, and our first row of steps.csv
PROFILED = 10  # steps after it: our log_every, so that one of them writes a row
AHEAD = 3  # rounds of all loader processes that are measured at least: in the first one they all finish at once


@dataclass(frozen=True)
class Case:
    """``loop`` trains ``model``, or only loads its data."""

    loop: str
    model: str
    data: str
    precision: str
    channels_last: bool = False
    compile: bool = False

    @property
    def options(self) -> str:
        """What the table calls it, below model and data."""
        extra = ["channels_last" if self.channels_last else "", "compile" if self.compile else ""]
        precision = [] if self.model == NO_MODEL else [self.precision]
        return " ".join([self.loop, *precision, *filter(None, extra)])

    @property
    def is_profiled(self) -> bool:
        """Whether the file says what its steps consist of: of the loops that are compared with each other."""
        return self.data == READY and self.precision == BEST and self.loop in (OURS, BY_HAND, AGAIN, TIMM)

    @property
    def line(self) -> str:
        return f"{self.model} {self.data} {self.options}"


@dataclass(frozen=True)
class Setup:
    """photos: the root of an image folder; scratch: where runs may write; cores: how many there are."""

    device: str
    batch_size: int
    image_size: int
    steps: int
    cores: int
    photos: Path
    scratch: Path

    def workers(self, case: Case) -> int:
        """Loader processes: all cores where they decode; where they only pass batches on, a few."""
        return self.cores if case.data == PHOTOS else min(4, self.cores)

    def span(self, case: Case) -> tuple[int, int]:
        """The steps after which the clock starts and stops."""
        workers = self.workers(case) if case.data == PHOTOS else 0
        first = max(OPENING, workers)
        return first, first + max(self.steps, AHEAD * workers)

    def end(self, case: Case) -> int:
        """The last step: those that are profiled come after the clock has stopped."""
        return self.span(case)[1] + (PROFILED if case.is_profiled else 0)

    @property
    def longest(self) -> int:
        """Samples that any case needs for one epoch."""
        return self.batch_size * (max(OPENING, self.cores) + max(self.steps, AHEAD * self.cores) + PROFILED + 2)


@dataclass(frozen=True)
class Measured:
    """peak_bytes: of tensors, in the steps that were measured; bytes_per_step: see Traffic. None where unknown.

    steps: of a profiled case.
    """

    seconds_per_step: float
    samples_per_second: float
    peak_bytes: int | None = None
    bytes_per_step: int | None = None
    steps: Steps | None = None

    @classmethod
    def of(cls, setup: Setup, seconds: float, **known: Any) -> "Measured":
        return cls(seconds, setup.batch_size / seconds, **known)


def cases(models: list[str], *, full: bool) -> list[Case]:
    """All rows in the order of the table. ``full``: every combination is compiled, which takes a minute each."""
    loaders = [Case(loop, NO_MODEL, PHOTOS, "fp32") for loop in (TUTORIAL, OURS)]
    return [*(case for model in models for case in _of(model, full=full)), *loaders]


def _of(model: str, *, full: bool) -> list[Case]:
    is_convolutional = not model.startswith(WITHOUT_CONVOLUTIONS)
    formats = (False, True) if is_convolutional or full else (False,)
    compiled = [(p, f) for p in PRECISIONS for f in formats] if full else [(BEST, is_convolutional)]
    return [
        Case(TUTORIAL, model, READY, "fp32"),
        *(Case(loop, model, READY, BEST, is_convolutional) for loop in (BY_HAND, TIMM)),
        *(Case(OURS, model, READY, precision, last) for precision in PRECISIONS for last in formats),
        *(Case(OURS, model, READY, precision, last, compile=True) for precision, last in compiled),
        Case(AGAIN, model, READY, BEST, is_convolutional),
        *(Case(TUTORIAL, model, PHOTOS, precision) for precision in ("fp32", "amp")),
        Case(OURS, model, PHOTOS, BEST, is_convolutional),
    ]
