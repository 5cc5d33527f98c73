"""Gathers jobs from the paths that the user names: of a sweep with a ledger, of any Hydra sweep, or loose runs."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads.runner.data.data_option import DataOption
from manyheads.runner.errors import ConfigurationError, Failure
from manyheads.runner.records.load_run import Run, load_run, read_overrides
from manyheads.runner.run import seal
from manyheads.runner.run.files import is_locked
from manyheads.runner.run.ledger import EARLIER, Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder

SEED, FOLD = "seed", f"data.{DataOption.repeating}"
RUNS = "runs"  # within the folder of a tuning or a judgement
REPEATING = (SEED, FOLD)  # keys that repeat a job rather than define another one
# A comparison reads these columns of steps.csv, since parsing numbers is most of the work for long runs, these and the
# validation columns of epochs.csv, and these keys of the other files.
OF_STEPS = ("epoch", "step", "samples", "loss", "samples_per_second", "data_fraction")
OF_EPOCHS = ("epoch", "step", "started", "train_seconds", "train_loss", "samples_per_second", "peak_memory_mb")
UNUSED = ("val_samples", "val_seconds")
OF_PROVENANCE = ("host", "devices", "cpu", "versions", "commit", "clean", "own", "command", "ranks", "predicted")
OF_RESULT = (
    *("status", "error", "objective", "metrics", "best", "scores", "weights_sha256", "world_size", "train_seconds"),
    *("samples_per_second", "peak_memory_mb", "held_bytes", "slow_ranks"),
)
COUNTS = {"epoch", "step", "samples"}  # columns that most runs of a comparison have in common


@dataclass(frozen=True)
class SweepJob:
    """A run, or a job that never became one. ``number``: its name for the user, such as 3.

    ``row``: the number of the first of the jobs that it is averaged with, if it is.
    """

    number: str
    run: Run
    state: str
    overrides: tuple[str, ...] = ()
    repeat: int = 1
    reason: str | None = None
    out_of_memory: bool = False
    split: int = 1
    objective: float | None = None
    row: str | None = None


@dataclass(frozen=True)
class RunSet:
    """The jobs to compare. ``folder``: the sweep's, None for loose runs, which are not from one sweep.

    ``active``: jobs are still to run; ``notes``: remarks on how the jobs were run.
    """

    title: str
    folder: Path | None
    jobs: tuple[SweepJob, ...]
    active: bool = False
    notes: tuple[str, ...] = ()


def gather(paths: list[str]) -> RunSet:
    """Gather the jobs of all these folders. Raises ConfigurationError for one that holds neither a run nor a sweep."""
    if not paths:
        raise ConfigurationError("Name the folder of a sweep, or of runs, such as outputs/sweeps/<date>/<time>.")
    common: dict[Any, Any] = {}
    run_sets = [_one(Path(path), common) for path in dict.fromkeys(paths)]
    if len(run_sets) == 1:
        return averaged(run_sets[0])
    several = [
        replace(job, number=f"{run_set.title}/{job.number}" if run_set.folder else job.number)
        for run_set in run_sets
        for job in run_set.jobs
    ]
    notes = tuple(f"{run_set.title}: {note}" for run_set in run_sets for note in run_set.notes)
    return averaged(RunSet("several folders", None, tuple(several), any(run_set.active for run_set in run_sets), notes))


def averaged(run_set: RunSet) -> RunSet:
    """Combine jobs whose overrides differ only in the seed or the fold of a cross-validation into one row.

    Only jobs of one sweep, or loose runs of one commit, are combined: other differences may be what is compared.
    """
    first: dict[tuple[object, ...], str] = {}
    jobs = []
    for job in run_set.jobs:
        kept = [override for override in job.overrides if override.lstrip("+").partition("=")[0] not in REPEATING]
        if len(kept) == len(job.overrides) and job.run.config.get(FOLD) is None:
            jobs.append(job)
            continue
        source = None if run_set.folder else (job.run.folder.parent, job.run.provenance.get("commit"))
        jobs.append(replace(job, row=first.setdefault((source, *kept), job.number)))
    return replace(run_set, jobs=tuple(jobs))


def _one(path: Path, common: dict[Any, Any]) -> RunSet:
    if not path.is_dir():
        raise ConfigurationError(f"{path} is not a folder. Pass a sweep or run folder, as in outputs/.")
    if (ledger := Ledger(path)).exists():
        active = ledger.is_active()
        jobs = tuple(_of_ledger(ledger.sweep, entry, active, common) for entry in ledger.entries())
        return RunSet(str(path), ledger.sweep, jobs, active, _beside(ledger) if len(jobs) > 1 else ())
    if RunFolder(path).config.exists():
        job = _of_folder(path, str(path), common)
        return RunSet(str(path), None, (job,), job.state == "running")
    children = _runs_in(path) or (_runs_in(path / RUNS) if (path / RUNS).is_dir() else [])
    if children or (path / "multirun.yaml").exists():
        jobs = tuple(_of_folder(child, child.name, common) for child in children)
        return RunSet(str(path), path.absolute(), jobs, any(job.state == "running" for job in jobs))
    if RunFolder(path).holds_run():  # refused before it was frozen
        return RunSet(str(path), None, (_of_folder(path, str(path), common),))
    raise ConfigurationError(f"{path} holds neither a run (run.yaml) nor a sweep (ledger.jsonl, or folders of runs).")


def _runs_in(path: Path) -> list[Path]:
    return sorted((child for child in path.iterdir() if RunFolder(child).holds_run()), key=_by_number)


def _beside(ledger: Ledger) -> tuple[str, ...]:
    """Remarks if jobs shared the machine."""
    options = ledger.options()
    jobs = str(options.get("jobs") or 1) if isinstance(options, dict) else "1"
    if jobs == "1":
        return ()
    ran = "Jobs may have run" if jobs == "auto" else f"{jobs} jobs ran"
    return (f"{ran} at the same time (hydra.launcher.jobs={jobs}), so their timings are unreliable.",)


def _of_ledger(sweep: Path, entry: Entry, active: bool, common: dict[Any, Any]) -> SweepJob:
    folder = sweep / entry.folder
    is_its_own = entry.signature is not None or entry.state == "completed"  # else refused: it may be another's
    if not (folder.resolve().is_relative_to(sweep) or _is_own_earlier_run(sweep, entry)):
        return SweepJob(
            str(entry.job), Run(folder), entry.state, tuple(entry.overrides), reason="it lies outside the sweep"
        )
    run = _compared(folder, common) if is_its_own else Run(folder)
    state, reason = entry.state, entry.reason
    if state == "running" and not active:
        state, reason = "interrupted", reason or "the sweep was killed"
    return SweepJob(
        number=str(entry.job),
        run=run,
        state=state,
        overrides=tuple(entry.overrides),
        repeat=entry.repeat,
        reason=reason or (_reason(run, state) if is_its_own else None),
        out_of_memory=entry.out_of_memory,
        split=entry.split,
        objective=entry.objective if entry.objective is not None else run.result.get("objective"),
    )


def _is_own_earlier_run(sweep: Path, entry: Entry) -> bool:
    """Whether a job of the user's own sweep was completed by another of the user's own runs."""
    is_own = entry.reason == EARLIER and seal.is_own(sweep, Ledger(sweep).sealed_part())
    return is_own and RunFolder(sweep / entry.folder).is_own()


def _compared(folder: Path, common: dict[Any, Any]) -> Run:
    """The part of a run that a comparison needs. ``common``: earlier runs' values, so that equal ones are held once."""
    run = load_run(folder, steps=OF_STEPS, epochs=_is_compared)

    def shared(value: Any) -> Any:
        return common.setdefault(repr(value), value)

    for table in (run.steps, run.epochs):
        for name in COUNTS & table.keys():
            column: Any = table[name]  # an array
            table[name] = common.setdefault(bytes(column), column)
    result: Any = {key: run.result[key] for key in OF_RESULT if key in run.result}  # type: ignore[literal-required]
    for key in ("metrics", "best"):
        if result.get(key):
            result[key] = {sys.intern(name): value for name, value in result[key].items() if _is_compared(name)}
    for key in ("status", "scores", "held_bytes"):
        if key in result:
            result[key] = shared(result[key])
    provenance: Any = {key: shared(run.provenance[key]) for key in OF_PROVENANCE if key in run.provenance}  # type: ignore[literal-required]
    return replace(run, provenance=provenance, result=result)


def _is_compared(column: str) -> bool:
    return column in OF_EPOCHS or (column.startswith("val_") and column not in UNUSED)


def _of_folder(path: Path, number: str, common: dict[Any, Any]) -> SweepJob:
    run = _compared(path, common)
    state, reason = _state(run)
    return SweepJob(
        number=number,
        run=run,
        state=state,
        overrides=tuple(read_overrides(path) or ()),
        reason=reason or _reason(run, state),
        objective=run.result.get("objective"),
    )


def _state(run: Run) -> tuple[str, str | None]:
    if status := run.result.get("status"):
        return str(status), None
    if not (config := RunFolder(run.folder).config).exists():
        return "failed", "it was refused before it started, or is not a manyheads run"
    if is_locked(config):
        return "running", None
    return "interrupted", "it was killed, or never started: there is no result.json"


def _reason(run: Run, state: str) -> str | None:
    """The last line of the error of the rank that failed first."""
    if state == "completed":
        return None
    if (failure := Failure.from_json(run.result.get("error"))) is None:
        return None
    last = (failure.message.strip().splitlines() or [""])[-1]
    where = "" if failure.rank is None else f"rank {failure.rank}: "
    return f"{where}{failure.type}: {last}"


def _by_number(path: Path) -> tuple[bool, int, str]:
    return (not path.name.isdigit(), int(path.name) if path.name.isdigit() else 0, path.name)
