"""The command ``manyheads report``: gathers and compares runs, shows the comparison, and writes its files."""

import csv
import io
import logging
import sys
import time
from pathlib import Path

from rich.text import Text

from manyheads.runner.errors import ConfigurationError, ExitCode
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import Console
from manyheads.runner.records.compared_runs import ComparedRuns
from manyheads.runner.records.run_set import gather
from manyheads.runner.report.answer import compared_runs, show
from manyheads.runner.report.charts import charts
from manyheads.runner.report.columns import file_columns, shown_columns
from manyheads.runner.report.comparison import Comparison, compare
from manyheads.runner.report.comparison_page import as_page
from manyheads.runner.report.comparison_picture import draw, pictured
from manyheads.runner.run.data_files import cell, without_collector
from manyheads.runner.run.files import fresh_folder, make_folder, remove, whole_file, write_whole
from manyheads.runner.run.progress import keeping, working

log = logging.getLogger(__name__)
COMPARISONS = Path("outputs") / "comparisons"
RELOAD_SECONDS = 5


class NothingToCompare(ConfigurationError):
    """No job completed, and none is running; the table was shown anyway."""

    exit_code = ExitCode.FAILED


def report(
    paths: list[str], *, baseline: str | None = None, to: str | None = None, is_watched: bool = False
) -> ComparedRuns:
    """Compare these sweeps or runs, and write the comparison into the sweep's folder, or into ``to``.

    ``baseline``: a job's number, or values such as parallel=dp,precision=fp32; ``is_watched``: first keep its files up
    to date until no job runs any more. Raises ConfigurationError for a folder that holds no run, NothingToCompare if no
    job completed and none will.
    """
    if is_watched:
        with keeping("report --watch", "the runs continue; the files show them as they were"):
            to = _follow(paths, baseline=baseline, to=to)
    return _report(paths, baseline=baseline, to=to)


def _follow(paths: list[str], *, baseline: str | None, to: str | None) -> str | None:
    """Write the files repeatedly while jobs run; returns their folder, if there was anything to write."""
    console, announced = Console(stderr=True), False
    with console.status("waiting for a job") as status:
        while True:
            started = time.monotonic()
            if not (comparison := compare(gather(paths), baseline=baseline)).active:
                return to
            if comparison.rows:
                to = to or str(_folder(comparison, None))
                write(comparison, Path(to), reloads=RELOAD_SECONDS)
                if not announced:
                    console.print(Text(f"{to}/comparison.html reloads itself. Ctrl-C stops this command only."))
                announced = True
            status.update(Text(comparison.headline))
            time.sleep(max(RELOAD_SECONDS, 10 * (time.monotonic() - started)))


def _folder(comparison: Comparison, to: str | None) -> Path:
    by_clock = COMPARISONS / time.strftime("%Y-%m-%d") / time.strftime("%H-%M-%S")
    return Path(to) if to else comparison.folder or fresh_folder(by_clock)


@without_collector()
def _report(paths: list[str], *, baseline: str | None, to: str | None) -> ComparedRuns:
    with working("comparing runs", kept="no file was written"):
        comparison = compare(gather(paths), baseline=baseline)
    written: list[Path] = []
    if comparison.rows:
        kept = "the files that are there are complete; run it again for the others"
        with working("writing the comparison", kept=kept):
            written = write(comparison, _folder(comparison, to))
    answer = compared_runs(comparison, written, is_shown=True)
    if not (comparison.completed or comparison.active):
        answer.show()
        why = ", since no job completed" if comparison.rows else ""
        error = NothingToCompare(f"{comparison.title}: there is nothing to compare{why}.")
        error.answer = answer
        raise error
    return answer


@without_collector()
def refresh(sweep: Path, *, quiet: bool) -> None:
    """Update a sweep's comparison. Never raises: a finished sweep must not fail because of its report."""
    try:
        if (comparison := compare(gather([str(sweep)]))).rows:
            write(comparison, sweep)
        if not quiet:
            show(comparison)
            print(f"results in {sweep}")
    except Exception as error:
        log.warning("no comparison of %s: %s", sweep, error, exc_info=True)
        if not quiet:
            why = str(error).removesuffix(".")
            print(f"no comparison: {why}. `{invocation.command('report', sweep)}` tries again.", file=sys.stderr)


def write(comparison: Comparison, folder: Path, *, reloads: int | None = None) -> list[Path]:
    """Write comparison.csv, .md, .png and .html, each atomically. Raises ConfigurationError if it cannot.

    ``reloads``: seconds after which the page loads itself again; None for a page that does not.
    """
    try:
        folder = folder.resolve()
        make_folder(folder)
        drawn = charts(comparison)
        write_whole(folder / "comparison.html", as_page(comparison, folder, drawn, reloads=reloads))
        drawn = pictured(drawn)
        for job in (job for row in comparison.rows for job in row.jobs):  # drawing takes the memory of what was read
            job.run.steps.clear()
            job.run.epochs.clear()
        write_whole(folder / "comparison.csv", as_csv(comparison))
        write_whole(folder / "comparison.md", as_markdown(comparison))
        if image := draw(comparison, drawn):
            with whole_file(folder / "comparison.png") as file:
                file.write(image)
        else:
            remove(folder / "comparison.png")
    except OSError as error:
        raise ConfigurationError(
            f"{folder}: the comparison can't be written: {error.strerror}. Name another folder with --to.", key="--to"
        ) from None
    return [path for suffix in ("csv", "md", "png", "html") if (path := folder / f"comparison.{suffix}").exists()]


def as_csv(comparison: Comparison) -> str:
    """The table with one line per job; cells are empty if nothing was measured."""
    columns = file_columns(comparison)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([cell(column.name) for column in columns])
    writer.writerows([[cell(column.value(row)) for column in columns] for row in comparison.rows])
    return text.getvalue()


def as_markdown(comparison: Comparison) -> str:
    """The headline, the table, and the notes on it, in Markdown."""
    columns = shown_columns(comparison)
    parts = [f"**{_escaped(comparison.title)}**: {comparison.headline}"]
    if comparison.rows:
        rule = ["---:" if column.is_number else ":---" for column in columns]
        head = [_escaped(column.title) for column in columns]
        lines = [[_escaped(column.text(row)) for column in columns] for row in comparison.rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines)))
    parts.append(_escaped(comparison.caption))
    parts.append("\n".join(f"- {_escaped(line)}" for line in (*comparison.notes, *comparison.reasons)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _escaped(text: str) -> str:
    """The text escaped so that Markdown shows it unchanged: no markup, no HTML, one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\|*_`[]":
        text = text.replace(mark, f"\\{mark}")
    return text
