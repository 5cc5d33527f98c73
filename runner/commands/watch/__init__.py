"""``python -m runner watch``: follow a run or a sweep in the terminal."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from manyheads.launchers.sweep.console import Titles
from manyheads.runner.commands.watch.run_view import (
    COLUMNS,
    ENDED,
    Now,
    metric_column,
    metric_curve,
    run_view,
    state_of,
)
from manyheads.runner.commands.watch.terminal_curves import Curve, Plot
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine.console import Console
from manyheads.runner.records.find import OUTPUTS, run_folder
from manyheads.runner.records.load_run import Run, load_run
from manyheads.runner.records.run_summary import ListedRun, summaries
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.ledger import STATES, Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted, duration, loss_text

HELP = "follow a run or a sweep: curves, speed, time left, jobs"
SECONDS = 1.0  # between two updates, or ten times as long as one takes if that is longer
PALETTE = ("cyan", "magenta", "yellow", "green", "blue", "red")
Look = Callable[[], tuple[RenderableType, bool]]  # returns what to show now, and whether that is final


@dataclass(frozen=True)
class WatchedRuns(Answer):
    """A run, or the jobs of a sweep, when the command ends, which without a terminal it does at once."""

    runs: list[ListedRun]
    has_ended: Annotated[bool, "false if something may still change"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "folder", nargs="?", help="the folder of a run or of a sweep; by default the newest in outputs/ that runs"
    )


def run(arguments: argparse.Namespace) -> WatchedRuns:
    """Show a run or a sweep until it ends, or until Ctrl-C, which ends only this command. Raises ConfigurationError."""
    folder, has_ended = watch(arguments.folder)
    return WatchedRuns([ListedRun.of(job) for job in summaries(folder)], has_ended)


MOST_JOBS, MOST_CURVES = 20, 6


def watch(path: str | None) -> tuple[Path, bool]:
    """Show a run or a sweep until it ends; without a terminal, once. Return its folder, and whether it has ended.

    ``path``: its folder; by default the newest that is running. Raises ConfigurationError if the folder is neither.
    """
    path = path or _newest()
    look = _looking_at(path)
    if not (console := Console()).is_terminal:
        view, has_ended = look()
        console.print(view)
        return Path(path), has_ended
    times_ended = 0
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while times_ended < 2:  # at its very start, a run is neither running nor planned
            if times_ended:
                time.sleep(SECONDS)
            started = time.monotonic()
            view, has_ended = look()
            live.update(view, refresh=True)
            times_ended = times_ended + 1 if has_ended else 0
            if not has_ended:
                time.sleep(max(SECONDS, 10 * (time.monotonic() - started)))
    return Path(path), True


def _newest() -> str:
    running = [run for run in summaries(OUTPUTS) if run.status == "running"] if OUTPUTS.is_dir() else []
    if not running:
        raise ConfigurationError(f"nothing runs below {OUTPUTS}/. Name the folder of a run or of a sweep.")
    newest = max(running, key=lambda run: run.started)
    return str(newest.sweep or newest.folder.path)


def _looking_at(path: str) -> Look:
    if (ledger := Ledger(path)).exists():
        return lambda: sweep_view(ledger)
    if (ledger.sweep / "multirun.yaml").exists():
        raise ConfigurationError(
            f"{RunFolder(path)} has no {ledger.path.name} yet. Wait until it is planned, or name one of its runs."
        )
    folder = run_folder(path)
    return lambda: run_view(folder)


def sweep_view(ledger: Ledger) -> tuple[RenderableType, bool]:
    """The current view of a sweep, and whether it has ended."""
    entries, is_active = ledger.entries(), ledger.is_active()
    shown = _shown(entries)
    titles, colors = Titles(entries), dict[str, str]()
    rows, curves, metric = list[list[Text]](), list[Curve](), "metric"
    for entry in shown:
        run = load_run(ledger.sweep / entry.folder, steps=COLUMNS) if entry.state != "pending" else None
        if run is not None and run.epochs:
            metric = metric_column(run)
            if len(curves) < MOST_CURVES:
                colors[entry.folder] = PALETTE[len(curves)]
                curves.append(metric_curve(run, colors[entry.folder]))
        state = entry.state if is_active or entry.state != "running" else "interrupted"
        number = Text(f"{entry.job}", colors.get(entry.folder, ""))
        rows.append([number, Text(printable(titles.of(entry))), Text(*state_of(state)), *_cells(run, state)])
    more = [Text(f"... and {len(entries) - len(shown)} more jobs")] if len(entries) > len(shown) else []
    plot: list[RenderableType] = [Text(), Plot(f"{metric}, by epoch", curves)] if curves else []
    return Group(_headline(ledger, entries, is_active), _table(rows, metric), *more, *plot), not is_active


def _table(rows: list[list[Text]], metric: str) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("job", "what", "state", "epoch", "loss", metric, "samples/s", "left"):
        table.add_column(title, no_wrap=title != "what", overflow="fold" if title == "what" else "ellipsis")
    for row in rows:
        table.add_row(*row)
    return table


def _shown(entries: list[Entry]) -> list[Entry]:
    """At most MOST_JOBS: the running jobs, the latest to end, and the next ones, in the order of the sweep."""
    rank = {"running": 0, "pending": 2}
    order = sorted(
        enumerate(entries),
        key=lambda pair: (rank.get(pair[1].state, 1), pair[0] if pair[1].state == "pending" else -pair[1].time),
    )
    return [entries[index] for index, _ in sorted(order[:MOST_JOBS], key=itemgetter(0))]


def _cells(run: Run | None, state: str) -> list[Text]:
    """A job's cells in the columns from "epoch" on."""
    if run is None or not run.steps:
        return [Text()] * 5
    now = Now.of(run)
    epochs = f"{now.epoch}" + (f"/{now.epochs}" if now.epochs is not None else "")
    metric = f"{now.metric[1]:.4g}" if now.metric else ""
    speed = "" if now.speed is None else f"{now.speed:,.0f}"
    return [*map(Text, (epochs, loss_text(now.loss), metric, speed, duration(now.left) if state == "running" else ""))]


def _headline(ledger: Ledger, entries: list[Entry], is_active: bool) -> Text:
    counts = {state: sum(entry.state == state for entry in entries) for state in STATES}
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    ended = sum(counts[state] for state in ENDED)
    left = ""
    if is_active and ended and ended < len(entries):
        seconds = (
            (time.time() - ledger.path.with_name("multirun.yaml").stat().st_mtime) / ended * (len(entries) - ended)
        )
        left = f"; about {duration(seconds)} left"
    folder = printable(RunFolder(ledger.sweep))
    state = "running" if is_active else "ended" if ended == len(entries) else "interrupted"
    return Text.assemble((folder, "bold"), "  ", state_of(state), f"  {counted(len(entries), 'job')}: {states}{left}")
