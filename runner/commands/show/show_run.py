"""``show``: everything important about a run, on one page, with the commands for what to do next."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text

from manyheads.runner.config.lookup import ABOUT
from manyheads.runner.errors import Failure, printable, printable_text
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import Console
from manyheads.runner.provenance.own_code import in_words
from manyheads.runner.provenance.predicted import Outcome, outcome
from manyheads.runner.records.find import disk_use, run_folder
from manyheads.runner.records.load_run import load_run
from manyheads.runner.records.rerun import longer_command
from manyheads.runner.records.run_summary import Summary, summary
from manyheads.runner.records.shown_metric import described
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.crowding import Crowding
from manyheads.runner.run.files import matching
from manyheads.runner.run.json_schema import TEXT_ONLY
from manyheads.runner.run.json_types import ProvenanceJson, ResultJson
from manyheads.runner.run.score_versions import version_of
from manyheads.runner.run.slow_ranks import slow_in_words
from manyheads.runner.wording import duration, size_in_words

Entries = Iterator[tuple[str, str]]  # names and texts of the page
PARTS = ("cudnn", "nccl", "driver")  # versions that the page omits for brevity


@dataclass(frozen=True)
class NextCommand:
    """A command that makes sense for a run next."""

    what: Annotated[str, "such as: resume it"]
    command: Annotated[str, "the command, to be pasted into a shell in the current directory"]


@dataclass(frozen=True)
class RunPage(Answer):
    """Everything important about a run."""

    folder: str
    name: str | None
    tags: list[str]
    notes: str | None
    status: str
    epochs: int | None
    steps: Annotated[int | None, "updates"]
    job: Annotated[str, "what its queue reports about it; empty if it was not submitted to one"]
    error: Annotated[Failure | None, "what failed first"]
    started: Annotated[float, "when it was frozen, in seconds since 1970"]
    seconds: Annotated[float | None, "how long it took, from its start to its end"]
    typed: Annotated[dict[str, str], "the overrides that were typed for it, by key"]
    provenance: Annotated[Mapping[str, Any], "where it was started, with its code, versions, devices and data"]
    best: Annotated[dict[str, float | None] | None, "the metrics of the best epoch"]
    metrics: Annotated[dict[str, float | None], "the metrics of the last evaluation"]
    samples_per_second: float | None
    weights_sha256: str | None
    predicted: Annotated[Outcome | None, "how it compares with the prediction of `scale`; null if there was none"]
    files: Annotated[dict[str, int], "bytes of each file and folder in the run's folder"]
    next: list[NextCommand]
    about: Annotated[dict[str, str], TEXT_ONLY]

    def placed(self, folder: str, address: str) -> "RunPage":
        """The page of a run at ``address`` in object storage, made from a copy of it in ``folder``."""
        commands = [NextCommand(step.what, step.command.replace(folder, address)) for step in self.next]
        about = {name: text.replace(folder, address) for name, text in self.about.items()}
        return replace(self, folder=address, next=commands, about=about)

    def show(self) -> None:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in self.about.items():
            grid.add_row(name, Text(printable_text(text)))
        console = Console()
        console.print(grid)
        for step in self.next:  # each on its own line, unwrapped, so that it can be copied
            console.print(f"{step.what}:", style="bold")
            print(f"  {printable(step.command)}")


def run_page(path: str) -> RunPage:
    """The page of a run. Raises ConfigurationError if the folder holds no run."""
    run = summary(run_folder(path))
    provenance, result = load_run(run.folder.path, steps=()).provenance, run.result
    files = {file.name: disk_use(file) for file in matching(run.folder.path, "*") if file.name[0] != "."}
    return RunPage(
        folder=str(run.folder),
        name=run.about.get("name"),
        tags=[str(tag) for tag in run.about.get("tags") or ()],
        notes=run.about.get("notes"),
        status=run.status,
        epochs=result.get("epochs"),
        steps=result.get("steps"),
        job=run.job,
        error=Failure.from_json(result.get("error")),
        started=run.started,
        seconds=run.seconds,
        typed=run.typed,
        provenance=provenance,
        best=result.get("best"),
        metrics=result.get("metrics") or {},
        samples_per_second=result.get("samples_per_second"),
        weights_sha256=result.get("weights_sha256"),
        predicted=(compared := outcome(provenance, result)),
        files=files,
        next=[NextCommand(*step) for step in commands(run)],
        about=dict([*_state(run), *_origin(run, provenance), *_metrics(result), *_rest(run, compared, files)]),
    )


def commands(run: Summary) -> Entries:
    """What can be done next with a run, and the commands for it, to be pasted into a shell in the current directory."""
    folder = run.folder
    if run.status in ("interrupted", "failed", "pending") and folder.config.exists():
        yield "resume it", invocation.command("resume", folder)
    if run.status == "completed" and folder.last_checkpoint.exists():
        trainer = {key: run.value(f"trainer.{key}") for key in ("epochs", "max_steps", "stop_after")}
        yield "train longer", longer_command(folder, {"trainer": trainer})
    if folder.best_checkpoint.exists() or folder.last_checkpoint.exists():
        yield "evaluate it", invocation.command("evaluate", folder)
    if run.status == "completed":
        yield "reproduce it", invocation.command("reproduce", folder)


def _state(run: Summary) -> Entries:
    result, config = run.result, run.config
    yield "run", str(run.folder)
    for key in ABOUT:
        if text := config.get(key):
            yield key, ", ".join(map(str, text)) if isinstance(text, list) else str(text)
    reached = {key: result[key] for key in ("epochs", "steps") if key in result}
    counts = [f"{count:,} {key if count != 1 else key[:-1]}" for key, count in reached.items()]
    yield "status", ", ".join([run.status, *counts])
    if run.job:
        yield "job", run.job
    if failure := Failure.from_json(result.get("error")):
        yield "error", failure.describe()
    took = f", took {duration(run.seconds)}" if run.seconds is not None else ""
    yield "when", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started)) + took


def _origin(run: Summary, provenance: ProvenanceJson) -> Entries:
    if provenance.get("host"):
        yield "where", f"{provenance['host']}, in {provenance.get('directory')}"
    if provenance.get("command"):
        yield "command", str(provenance["command"])
    if before := provenance.get("continued_from"):
        yield "continued from", before
    elif source := provenance.get("composed_from"):
        yield "composed from", source
    if run.typed:
        yield "set", " ".join(f"{key}={value}" for key, value in run.typed.items())
    if commit := provenance.get("commit"):
        changes = ", clean" if provenance.get("clean") else f", with the changes in {run.folder.code_diff.name}"
        yield "manyheads", f"commit {commit[:10]}{changes}"
    if code := in_words(provenance):
        yield "your code", f"{code}; copies of its files in {run.folder.code.name}/"
    versions = (provenance.get("versions") or {}).items()
    if libraries := [f"{name} {version}" for name, version in versions if name not in PARTS and version]:
        yield "versions", ", ".join(libraries)
    if devices := ", ".join(provenance.get("devices") or ()) or str((provenance.get("cpu") or {}).get("model") or ""):
        yield "devices", devices


def _metrics(result: ResultJson) -> Entries:
    for name, measured in (("best", result.get("best")), ("last", result.get("metrics"))):
        if measured:
            shown = {key: value for key, value in measured.items() if value is not None}
            yield name, "  ".join(f"{key} {value:.6g}{_version(result, key)}" for key, value in shown.items())
    if result.get("samples_per_second"):
        yield "speed", f"{result['samples_per_second']:,.0f} samples/s"
    if slow := result.get("slow_ranks"):
        yield "slow", slow_in_words(slow)
    if result.get("weights_sha256"):
        yield "weights", f"sha256 {result['weights_sha256']}"


def _version(result: ResultJson, column: str) -> str:
    """The version of a column's definition, in brackets, unless it is the first."""
    version = version_of(result.get("scores") or {}, column)
    is_measured = column.endswith("_loss") or column.partition("_")[2] in described(result)
    return "" if version == "1" or not is_measured else f" (version {version})"


def _rest(run: Summary, compared: Outcome | None, files: Mapping[str, int]) -> Entries:
    if crowding := Crowding.read(run.folder.path):
        yield "cores", crowding.sentence
    if compared is not None:
        yield "predicted", f"{100 * compared.error:+.1f} %: {compared.describe()}"
    yield "files", ", ".join(f"{name} {size_in_words(size)}" for name, size in files.items())
