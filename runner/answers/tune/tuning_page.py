"""tuning.html: a tuning as one self-contained page, which needs neither network nor server."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median

from manyheads.runner.answers.measure.rows import BASE, COMPLETED, RunRow
from manyheads.runner.answers.tune.answer import YOURS, Tuned
from manyheads.runner.answers.tune.budget import log_seconds
from manyheads.runner.answers.tune.screening import SCREEN
from manyheads.runner.answers.tune.search import DECIDE, FRESH
from manyheads.runner.charts.chart_spec import Axis, Chart, Line
from manyheads.runner.charts.colours import OTHERS
from manyheads.runner.charts.html_page import html_page
from manyheads.runner.machine import invocation

TEMPLATE = Path(__file__).with_name("tuning.html.j2")
AFTERWARDS = (DECIDE, FRESH)
TITLES = ["configuration", "ms per update", "speed-up when screened", "rounds afterwards", "speed-up in them"]
Speedups = Mapping[str, list[tuple[str, float]]]  # by configuration, the purpose and speed-up of each round


def as_page(answer: Tuned, rows: Sequence[RunRow]) -> str:
    """The page as HTML. ``rows``: all runs of the ledger."""
    speedups = _speedups(rows)
    first, (numerics, headline, *others) = answer.choices[0], answer.lines()
    return html_page(
        TEMPLATE,
        heading=first.change or YOURS,
        kind="tuning",
        headline=headline.strip(),
        facts=_facts(answer, rows),
        lines=[numerics, *others],
        charts=_charts(speedups),
        titles=TITLES,
        configurations=[*_table(speedups, rows)],
        refused=answer.refused,
        data={},
    )


def _facts(answer: Tuned, rows: Sequence[RunRow]) -> dict[str, str]:
    times = [time.strftime("%Y-%m-%d %H:%M", time.localtime(row.began)) for row in (rows[0], rows[-1])]
    return {
        "command": invocation.command("tune", *answer.base),
        "date": " to ".join(dict.fromkeys(times)),
        "runs": str(len(rows)),
        "time": ", ".join(answer.phases()),
    }


def _speedups(rows: Sequence[RunRow]) -> Speedups:
    """Speed-ups over the user's own configuration in the same round, in the order of the rounds."""
    rounds: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in _timed(rows):
        rounds[row.purpose, row.round][row.arm] = log_seconds(row)
    speedups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for (purpose, _), times in rounds.items():
        for arm, seconds in times.items():
            if BASE in times:
                speedups[arm].append((purpose, math.exp(times[BASE] - seconds)))
    return speedups


def _timed(rows: Sequence[RunRow]) -> list[RunRow]:
    """The completed runs of rounds."""
    return [row for row in rows if row.purpose in (SCREEN, *AFTERWARDS) and row.state == COMPLETED]


def _charts(speedups: Speedups) -> list[Chart]:
    """A chart of the rounds after screening, in which the finalists ran repeatedly; none before them."""
    colours, lines, last = cycle(OTHERS), [], 0
    for arm, rounds in speedups.items():
        values = [speedup for purpose, speedup in rounds if purpose in AFTERWARDS]
        if values and arm != BASE:
            last = max(last, len(values))
            lines.append(Line(None, arm, next(colours), "solid", [*range(1, len(values) + 1)], values, mark="both"))
    if not lines:
        return []
    lines.append(Line(None, YOURS, "#56646e", "dot", [1, max(last, 2)], [1.0, 1.0]))
    note = (
        "Speed-up over your configuration in the same round. The line of a configuration shown to be slower ends early."
    )
    x, y = Axis("round after screening", is_whole=True), Axis("speed-up")
    return [Chart("rounds", "Every round after screening", note, x, y, lines)]


def _table(speedups: Speedups, rows: Sequence[RunRow]) -> Iterator[list[str]]:
    """The table's rows: configurations with rounds after screening, then the others, each part by speed-up."""

    def afterwards(arm: str) -> list[float]:
        return [speedup for purpose, speedup in speedups[arm] if purpose in AFTERWARDS]

    def key(arm: str) -> tuple[bool, float]:
        return not afterwards(arm), -median(afterwards(arm) or [speedup for _, speedup in speedups[arm]])

    for arm in sorted(speedups, key=key):
        took = [1000 * math.exp(log_seconds(row)) for row in _timed(rows) if row.arm == arm]
        screened = next((speedup for purpose, speedup in speedups[arm] if purpose == SCREEN), None)
        later = afterwards(arm)
        yield [
            YOURS if arm == BASE else arm,
            f"{median(took):.4g}",
            "" if screened is None or arm == BASE else f"{screened:.2f}",
            str(len(later)),
            f"{median(later):.2f}" if later else "",
        ]
