"""The answer of the command ``estimate``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from manyheads.runner.answers.estimate.print_estimate import show
from manyheads.runner.answers.measure.findings import DeviceMemory, Estimate, RankHolds, Traffic
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY

Bytes = Annotated[int, "bytes"]


@dataclass(frozen=True)
class EstimatedRank:
    """A rank's memory in an update, in bytes, and its traffic; null if the model can't be followed without data."""

    rank: int
    parameters: Bytes
    gradients: Bytes
    optimizer: Bytes
    masters: Annotated[int, "bytes of fp32 copies of half-precision weights"]
    buffers: Bytes
    activations: Annotated[int | None, "the most bytes saved for the backward pass at any moment; an estimate"]
    most: Annotated[int | None, "bytes at the moment when the rank holds most; an estimate"]
    total: Annotated[int, "most, or if that is unknown the sum of what is exact"]
    parts: Annotated[dict[str, int], "what total consists of, in bytes"]
    traffic: Annotated[dict[str, Traffic] | None, "collectives of one update, by kind"]
    communicated: Annotated[int | None, "bytes of all collectives of one update"]
    stops: Annotated[str, "the module in which the model can't be followed; empty if it can"]

    @classmethod
    def of(cls, holds: RankHolds) -> "EstimatedRank":
        """The answer for a rehearsed rank."""
        kinds = ("rank", "parameters", "gradients", "optimizer", "masters", "buffers", "activations", "most", "stops")
        return cls(
            **{kind: getattr(holds, kind) for kind in kinds},
            total=holds.total,
            parts=holds.parts(),
            traffic=None if holds.traffic is None else dict(holds.traffic),
            communicated=holds.sent,
        )


@dataclass(frozen=True)
class EstimatedRun:
    """One configuration."""

    label: Annotated[str, "the overrides by which it differs from the others"]
    parallel: str
    refused: Annotated[str, "why it can't run; empty if it can"]
    layout: str
    ranks: int
    samples_per_micro_batch: int
    seconds: Annotated[float, "how long the estimate took"]
    largest_rank: Annotated[int | None, "the rank that needs most memory"]
    fits: Annotated[bool | None, "whether that rank fits its device; null if that is unknown"]
    holds: Annotated[list[EstimatedRank], "ranks that show the most and the least that any holds"]


@dataclass(frozen=True)
class Estimates(Answer):
    """The memory and communication of the ranks of each configuration."""

    estimates: list[EstimatedRun]
    device_bytes: Annotated[int | None, "memory of each rank's device; null if it is unknown"]
    details: Annotated[list[Estimate], TEXT_ONLY]
    device: Annotated[DeviceMemory | None, TEXT_ONLY]

    @classmethod
    def of(cls, estimates: Sequence[Estimate], device: DeviceMemory | None) -> "Estimates":
        """The answer for these estimates."""
        return cls(
            [_run(estimate, device) for estimate in estimates],
            None if device is None else device.memory,
            [*estimates],
            device,
        )

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if any(run.fits is False for run in self.estimates) else ExitCode.DONE

    def show(self) -> None:
        show(self.details, self.device)


def _run(estimate: Estimate, device: DeviceMemory | None) -> EstimatedRun:
    largest = estimate.largest if estimate.holds else None
    fits = None
    if device is not None and largest is not None and (largest.most is not None or largest.total > device.memory):
        fits = largest.total <= device.memory
    return EstimatedRun(
        label=estimate.label,
        parallel=estimate.name,
        refused=estimate.reason,
        layout=estimate.layout,
        ranks=estimate.ranks,
        samples_per_micro_batch=estimate.samples,
        seconds=round(estimate.seconds, 2),
        largest_rank=None if largest is None else largest.rank,
        fits=fits,
        holds=[EstimatedRank.of(rank) for rank in estimate.holds],
    )
