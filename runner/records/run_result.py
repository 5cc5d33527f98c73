"""The result of a run, typed: what ``train``, ``resume`` and ``evaluate`` answer, and ``manyheads.run`` returns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from manyheads.runner.errors import ConfigurationError, Failure
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_types import ResultJson, right
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class Result(Answer):
    """The result of a run that has ended."""

    folder: Annotated[Path, "of the run, with all of its files"]
    status: Annotated[str, "completed, interrupted or failed"]
    epochs: Annotated[int, "completed ones"]
    steps: Annotated[int, "updates"]
    samples_seen: int
    metrics: Annotated[dict[str, float | None], "of the last evaluation"]
    best: Annotated[dict[str, float | None] | None, "of the evaluation that was best by checkpoint.monitor"]
    test: Annotated[
        dict[str, float | str | None] | None,
        "of the best weights on the test samples, and their checkpoint; null without trainer.test",
    ]
    objective: Annotated[float | None, "the monitored metric of the best epoch, which sweeps compare"]
    train_seconds: Annotated[float | None, "of the slowest rank's updates, without startup, evaluation and checkpoints"]
    wall_seconds: Annotated[float | None, "from the launch of the ranks to their end"]
    samples_per_second: Annotated[float | None, "training throughput of all ranks together"]
    peak_memory_mb: Annotated[list[float | None] | None, "of each device, in MB; on CPUs of each rank's process"]
    ranks: int
    device: str
    parallel: str
    precision: str
    launcher: str
    weights_sha256: Annotated[str | None, "digest of the final weights: two runs are the same if it is"]
    error: Annotated[Failure | None, "what failed first"]

    @classmethod
    def of(cls, folder: str | Path) -> "Result":
        """The result of the run in a folder. Raises ConfigurationError if there is no run, or if it has not ended."""
        run = RunFolder(folder)
        run.read_config()  # or there is no run
        if (recorded := run.read_result()) is None:
            raise ConfigurationError(f"{run} has not finished: it has no {run.result.name}.")
        result = right(recorded, ResultJson)
        fields: dict[str, Any] = {name: result.get(name) or 0 for name in ("epochs", "steps", "samples_seen")}
        fields |= {name: result.get(name) or "" for name in ("device", "parallel", "precision", "launcher")}
        same = ("best", "test", "objective", "train_seconds", "wall_seconds", "samples_per_second", "peak_memory_mb")
        fields |= {name: result.get(name) for name in same}
        return cls(
            folder=run.path,
            status=str(result.get("status")),
            metrics=result.get("metrics") or {},
            ranks=result.get("world_size", 0),
            weights_sha256=result.get("weights_sha256"),
            error=Failure.from_json(result.get("error")),
            **fields,
        )

    @property
    def config(self) -> RunConfig:
        """The run's config: frozen, with a typed section for each part. Raises ConfigurationError."""
        return RunConfig.read(RunFolder(self.folder))


def result_if_any(folder: Path | None) -> Any:
    """The result of a run, or None if the folder holds none."""
    try:
        return None if folder is None else Result.of(folder)
    except (ConfigurationError, OSError):
        return None


def refuse_edited(folder: RunFolder, result: ResultJson) -> None:
    """Raises ConfigurationError that names the files that differ from when the run ended."""
    now, recorded = folder.digests(), result.get("files")
    if not isinstance(recorded, dict):
        raise ConfigurationError(f"{folder.result} has no digests of the run's files. Restore it from a copy.")
    if changed := sorted(name for name in {*now, *recorded} if now.get(name) != recorded.get(name)):
        how = {
            name: "is missing" if name not in now else "was added" if name not in recorded else "" for name in changed
        }
        named = ", ".join(f"{name} {how[name]}".strip() for name in changed)
        raise ConfigurationError(
            f"{folder} was edited after it ended ({named}; by the digests in {folder.result.name}), so it can't be "
            "verified. Restore it from a copy."
        )
