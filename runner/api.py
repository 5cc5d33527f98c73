"""``manyheads.run``: one run from Python."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.config.command_line import CommandLine, typed_values
from manyheads.runner.config.fresh_folder import RUN_DIR, SWEEP_DIR, named_folder, new_folder
from manyheads.runner.config.quoting import quoted
from manyheads.runner.errors import ConfigurationError, ExitCode, Failure, Interrupted
from manyheads.runner.machine import invocation
from manyheads.runner.records.run_result import Result
from manyheads.runner.run.child_command import ChildEnd, run_command
from manyheads.runner.run.files import remove_if_empty
from manyheads.runner.run.json_types import Numbers
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.progress import EVENT
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted

Term = str | float | bool | Path  # the value of a command's flag


def run(overrides: Sequence[str] = (), *, conf: str | Path | None = None, **flags: Term) -> Result:
    """Train like ``manyheads train <overrides>``, in a separate process whose output appears here.

    overrides: as on the command line. conf: a folder with your own configs, like --config-dir; a trusted conf/ in the
    working directory is always included. flags: those of train that are not Hydra's, such as once=True.

    Raises ConfigurationError if the run is refused, with the key, its value and what is allowed where they are known;
    RunFailed with the error's text if it fails; BudgetSpent if a budget is spent; and KeyboardInterrupt if it was
    stopped by Ctrl-C or by a notebook's stop button.
    """
    line = as_typed(overrides, conf)
    if line.flags.multirun:
        raise ConfigurationError("manyheads.run is for a single run. Use manyheads.sweep, without -m.")
    if flags:  # by which the run's folder may be another one
        return _with_flags(line, flags)
    folder = RunFolder(new_folder(line.overrides))
    line = line if named_folder(line.overrides) else line.adding(f"{RUN_DIR}{quoted(folder.path)}")
    try:
        ended = call("train", *line.arguments)
    finally:
        remove_if_empty(folder.path)  # as it is if the run was refused
    if ended.code:
        raise ended.error(Failure.from_json((folder.read_result() or {}).get("error")))
    return Result.of(folder.path)


def _with_flags(line: CommandLine, flags: Mapping[str, Term]) -> Result:
    if (ended := call("train", *as_flags(flags), *line.arguments)).code:
        raise ended.error(Failure.from_json(ended.result.get("error")))
    return Result.of(ended.result["folder"])


def as_typed(overrides: Sequence[str], conf: str | Path | None) -> CommandLine:
    """The command line with these overrides. Raises ConfigurationError if they are a string instead of a list."""
    if isinstance(overrides, str):
        raise ConfigurationError(f'{overrides!r} is a string. Allowed: a list of overrides, such as ["{overrides}"].')
    return CommandLine((*map(str, overrides), *(() if conf is None else ("--config-dir", str(conf)))))


def as_flags(terms: Mapping[str, Term]) -> list[str]:
    """Keyword arguments as the flags of a command."""
    flags = []
    for name, value in terms.items():
        flag = f"--{name.replace('_', '-')}"
        flags += [flag] * value if isinstance(value, bool) else [flag, str(value)]
    return flags


@dataclass(frozen=True)
class Row:
    """One job of a sweep.

    ``overrides``: its swept values, by key; ``reason``: why it failed or was skipped, otherwise empty; ``metrics``: of
    its last evaluation; ``folder``: its run folder.
    """

    job: int
    overrides: dict[str, Any]
    status: str
    reason: str
    metrics: Numbers
    folder: Path


class Sweep(list[Row]):
    """The jobs of a sweep in order, including those that failed or were skipped. ``folder``: the sweep's folder."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).resolve()
        ledger = Ledger(self.folder)
        super().__init__(map(self._row, ledger.entries() if ledger.exists() else ()))

    def _row(self, entry: Any) -> Row:
        folder = RunFolder(self.folder / entry.folder)
        metrics = (folder.read_result() or {}).get("metrics") or {}
        values = typed_values(entry.overrides)
        return Row(entry.job, values, entry.state, entry.reason or "", metrics, folder.path)

    def __repr__(self) -> str:
        return f"<sweep of {counted(len(self), 'job')} in {self.folder}>"

    def to_pandas(self) -> Any:
        """A DataFrame with one row per job: swept values, status, metrics, folder. Needs pandas."""
        import pandas

        return pandas.DataFrame(
            [
                {"job": row.job, **row.overrides, "status": row.status, **row.metrics, "folder": str(row.folder)}
                for row in self
            ]
        )


def sweep(overrides: Sequence[str], *, conf: str | Path | None = None, **flags: Term) -> Sweep:
    """Run every combination like ``manyheads train -m <overrides>``, in a separate process.

    overrides: as on the command line. conf: a folder with your own configs, like --config-dir. flags: as for ``run``.

    A job that fails has a row with that status. Raises ConfigurationError if the whole sweep is refused, BudgetSpent if
    a budget is spent, and KeyboardInterrupt if it was stopped; ``manyheads resume`` continues it.
    """
    line = as_typed(overrides, conf)
    folder = new_folder(line.overrides, SWEEP_DIR)
    line = line if named_folder(line.overrides, SWEEP_DIR) else line.adding(f"{SWEEP_DIR}{quoted(folder.resolve())}")
    try:
        ended = call("train", "-m", *as_flags(flags), *line.arguments)
    finally:
        remove_if_empty(folder.resolve())  # as it is if the sweep was refused
    jobs = Sweep(folder)
    if ended.code == ExitCode.SPENT or (ended.code and not jobs):  # otherwise a job failed, and its row says so
        raise ended.error()
    return jobs


def call(*words: str) -> ChildEnd:
    """Run ``manyheads <words>`` to its end, forwarding its output line by line to ``sys.stdout``, events to stderr.

    Ctrl-C, or a notebook's stop button, asks the command to stop with a checkpoint; a second one ends it at once.
    Raises KeyboardInterrupt once it has ended. SIGTERM also stops the command, and then takes its usual effect here.
    """
    command = [sys.executable, "-m", "manyheads", *words]
    environment = {**os.environ, "PYTHONPATH": invocation.import_path(), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}

    def show(line: str) -> None:
        stream = sys.stderr if line.startswith(EVENT) else sys.stdout
        stream.write(line)
        stream.flush()

    try:
        return run_command(command, environment, on_line=show)
    except Interrupted as reason:
        stop = KeyboardInterrupt(str(reason))
        for kept in getattr(reason, "__notes__", ()):
            stop.add_note(kept)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(reason.signum)  # now it takes its usual effect on this process
        raise stop from None
