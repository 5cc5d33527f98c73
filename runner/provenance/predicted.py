"""Predictions of ``scale``, and how later runs compare: the ledger ``outputs/predictions.jsonl``, each line sealed.

A run that was predicted has the prediction in its provenance.json from before its ranks start; when it completes, its
measured time is added to the ledger too.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import no_link, parse_json, read_json, read_text
from manyheads.runner.run.files import in_turn, make_folder
from manyheads.runner.run.json_types import PredictedJson, ProvenanceJson, ResultJson, right
from manyheads.runner.run.run_folder import RunFolder

LEDGER = Path("outputs") / "predictions.jsonl"
MOST_BYTES = 2**26
PURPOSE = "prediction"  # of the seals
GROUPS = ("model", "data", "task", "optimizer", "precision", "loss", "parameters", "trainer")
# Keys that change neither what an update computes nor what it exchanges; and the batch, which predictions name.
IGNORED = {
    "data": ("root", "fingerprint", "batch_size", "val_fraction", "folds", "fold", "split_seed", "val_transform"),
    "optimizer": ("lr", "lr_scaling", "base_batch_size"),
    "trainer": (
        *("epochs", "max_steps", "stop_after", "evaluate_only", "max_time", "patience", "min_delta", "evaluate_every"),
        *("tta", "limit_train", "limit_val", "limit_test", "test", "log_every", "swa_start", "on_nan"),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """How a run compares with what was predicted of it. Seconds are of one update."""

    seconds: Annotated[float, "as predicted"]
    low: Annotated[float, "of the prediction's 80 % interval"]
    high: float
    measured: Annotated[float, "of all updates but the first few"]
    network: Annotated[str, "for which it was predicted"]
    device: str
    is_alike: Annotated[bool, "whether machines had as many ranks as predicted"]

    @property
    def error(self) -> float:
        """The error of the predicted time, relative to the measured one."""
        return self.seconds / self.measured - 1

    @property
    def is_within(self) -> bool:
        """Whether the measured time is within the predicted interval."""
        return self.low <= self.measured <= self.high

    def describe(self) -> str:
        """The comparison in words, without the run's name."""
        low, high, measured, best = (1000 * seconds for seconds in (self.low, self.high, self.measured, self.seconds))
        within = "within" if self.is_within else "outside"
        other = "" if self.is_alike else "; it was predicted for another number of ranks per machine"
        return (
            f"{best:.4g} ms per update were predicted for {self.device} over {self.network} and {measured:.4g} "
            f"measured, {within} the interval of {low:.4g} to {high:.4g}{other}"
        )


@dataclass(frozen=True)
class Record:
    """Of the ledger's runs whose machines had as many ranks as predicted."""

    runs: int
    mean_error: Annotated[float, "of the predicted times, relative to the measured ones, without their signs"]
    within: Annotated[int, "how many were within their 80 % intervals"]


def subject(run: RunConfig, *, devices: int, batch: int) -> str:
    """A digest of what the time of an update depends on, whatever the launcher. Raises ConfigurationError."""
    written = {group: _without(run.written[group], IGNORED.get(group, ())) for group in GROUPS}
    exchanges = asdict(run.parallel.exchanges(devices=devices))
    return seal.digest_of({**written, "parallel": run.parallel.name, "exchanges": exchanges, "batch": batch})


def _without(section: Any, keys: Iterable[str]) -> Any:
    return {key: value for key, value in section.items() if key not in keys} if isinstance(section, dict) else section


def keep(predictions: Iterable[PredictedJson]) -> None:
    """Add predictions to the ledger in the working directory; nothing if no key for their seals can be created."""
    now = time.time()
    _append([{**prediction, "time": now} for prediction in predictions])


def of_run(run: RunConfig) -> PredictedJson | None:
    """The newest prediction of a run that starts now in the working directory; None if there is none."""
    if not LEDGER.exists():
        return None
    with suppress(ConfigurationError):  # a strategy that cannot be predicted
        devices = run.parallel.devices(ranks=run.launcher.ranks, gpus=run.gpus_here) or run.launcher.ranks
        wanted = subject(run, devices=devices, batch=run.data.batch_size)
        predictions = [line for line in _lines(of=wanted) if line.get("devices") == devices]
        if predictions:
            per_machine = min(devices, run.launcher.nproc_per_node)
            alike = min(predictions[-1].get("per_machine", 0), devices) == per_machine
            return right({**predictions[-1], "is_alike": alike}, PredictedJson)
    return None


def outcome(provenance: ProvenanceJson, result: ResultJson) -> Outcome | None:
    """How a completed run compares with its prediction; None if it has none."""
    predicted, speed = provenance.get("predicted") or {}, result.get("samples_per_second")
    names = ("seconds", "low", "high", "network", "device", "is_alike")
    if result.get("status") != "completed" or any(predicted.get(name) is None for name in (*names, "batch")):
        return None
    numbers = [speed, *(predicted.get(name) for name in ("batch", "seconds", "low", "high"))]
    if not all(isinstance(number, (int, float)) and 0 < number < math.inf for number in numbers):
        return None
    return Outcome(**{name: predicted[name] for name in names}, measured=predicted["batch"] / speed)  # type: ignore


def note(folder: RunFolder) -> None:
    """Add a run's measured time to the ledger, if it was predicted. Called when it has ended; never fails."""
    with suppress(OSError, ConfigurationError):
        provenance = right(read_json(folder.provenance), ProvenanceJson)
        if (compared := outcome(provenance, folder.read_result() or {})) is not None:
            _append([{"run": str(folder.path), **asdict(compared), "time": time.time()}])


def record() -> Record | None:
    """How good the predictions in the working directory's ledger were; None without any run."""
    last = {line["run"]: line for line in _lines() if "run" in line and line.get("is_alike")}  # a run may be resumed
    names = [*Outcome.__dataclass_fields__]
    runs = [Outcome(**{name: line[name] for name in names}) for line in last.values()]
    if not runs:
        return None
    error = sum(abs(run.error) for run in runs) / len(runs)
    return Record(len(runs), error, sum(run.is_within for run in runs))


def _append(contents: Iterable[Mapping[str, Any]]) -> None:
    lines = [(content, seal.keyed(PURPOSE, content)) for content in contents]
    if not lines or lines[0][1] is None:
        return
    make_folder(LEDGER.resolve().parent)
    with in_turn(LEDGER), open(LEDGER, "a", opener=no_link) as file:
        file.write("".join(json.dumps({"content": content, "seal": code}) + "\n" for content, code in lines))


def _lines(*, of: str = "") -> Iterator[Mapping[str, Any]]:
    """What this user wrote into the ledger; other lines are ignored, and a line that a killed writer left.

    ``of``: a subject, whose predictions alone are wanted.
    """
    try:
        lines = read_text(LEDGER, most=MOST_BYTES).splitlines()
    except (OSError, ConfigurationError):
        return
    for line in lines:
        if of not in line:
            continue
        with suppress(ValueError, TypeError, LookupError, RecursionError):
            parsed = parse_json(line)
            code = seal.keyed(PURPOSE, parsed["content"])
            if code is not None and parsed["seal"] == code:
                yield parsed["content"]
