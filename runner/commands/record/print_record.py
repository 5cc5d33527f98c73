"""A record for people: lines for the terminal, a page with a picture."""

import io
import shlex
from pathlib import Path
from typing import Any

from manyheads.runner.commands.record.evidence import CLOCKS, Contender, Record
from manyheads.runner.commands.record.statistics import SIGNIFICANT, Spread
from manyheads.runner.report.html_page import html_page

COLUMNS = ("recipe", "runs", "reached", "mean ± sd", "p", "seconds ± sd (lowest–highest)")

TEMPLATE = Path(__file__).with_name("record.html.j2")


def reaches(record: Record, contender: Contender) -> bool:
    """Whether its mean reaches the target, and by more than chance would explain."""
    p = contender.findings(record.target)["p_of_target"]
    return p is not None and p < SIGNIFICANT


def rows(record: Record) -> list[tuple[str, ...]]:
    """Cells as COLUMNS names them, a row for each contender."""
    return [_row(record, each) for each in record.contenders]


def _row(record: Record, contender: Contender) -> tuple[str, ...]:
    value, seconds = Spread.of(contender.values), Spread.of(contender.seconds)
    p = contender.findings(record.target)["p_of_target"]
    return (
        contender.label,
        str(value.n),
        "yes" if reaches(record, contender) else "no",
        f"{value.mean:.3f} ± {value.deviation:.3f}",
        "" if p is None else f"{p:.2g}",
        f"{seconds.mean:.4g} ± {seconds.deviation:.2g} ({seconds.low:.4g}–{seconds.high:.4g})",
    )


def sentences(record: Record) -> list[str]:
    """What was found, and how it was measured."""
    first, *others = record.contenders
    found = [_verdict(record, first)]
    for index, other in enumerate(others, 1):
        ratio = Spread.of(other.seconds).mean / Spread.of(first.seconds).mean
        p = record.to_json()["contenders"][index]["p_of_same_seconds"]
        chance = "" if p is None else f" (p = {p:.2g} if both take the same time)"
        found.append(f"{other.label} takes {ratio:.2f} times as long in the same session{chance}.")
    found.append(f"Seconds are of the {record.clock} clock: {CLOCKS[record.clock][1]}.")
    found.append(
        f"p: the probability of a mean this good if the recipe just missed {record.target} (one-sided t-test); a "
        f"record needs p < {SIGNIFICANT}. Every run counts."
    )
    return found


def _verdict(record: Record, first: Contender) -> str:
    mean = f"mean {Spread.of(first.values).mean:.3f} in {len(first.attempts)} runs"
    if reaches(record, first):
        return f"{first.label} reaches {record.target}: {mean}, in {Spread.of(first.seconds).mean:.3f} s."
    return f"{first.label} is not shown to reach {record.target}: {mean}."


def as_page(record: Record) -> str:
    """One page that needs nothing else."""
    verdict, *others = sentences(record)
    machine: dict[str, Any] = record.contenders[0].machine
    where = {key: value for key, value in machine.items() if key != "versions"}
    where |= {key: value for key, value in machine.get("versions", {}).items() if value}
    return html_page(
        TEMPLATE,
        heading=str(record.target),
        kind="a record",
        charts=(),
        data={},
        headline=verdict,
        facts={key: _text(value) for key, value in where.items()},
        sentences=others,
        titles=COLUMNS,
        rows=rows(record),
        picture=_picture(record),
    )


def _text(value: Any) -> str:
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def _picture(record: Record) -> str:
    """SVG with a point for each run: seconds across, the metric up, the target a line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for contender, marker in zip(record.contenders, "os^Dv*" * len(record.contenders), strict=False):
        axes.scatter(contender.seconds, contender.values, marker=marker, alpha=0.7, label=contender.label)
    axes.axhline(record.target.value, color="0.4", linestyle="--", linewidth=1, label=str(record.target))
    axes.set(xlabel=f"seconds ({record.clock} clock)", ylabel=record.target.metric)
    axes.legend(loc="best", fontsize="small")
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
