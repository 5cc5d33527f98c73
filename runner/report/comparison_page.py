"""comparison.html: one self-contained page, without a network or a server."""

import math
import os
from collections.abc import Container
from pathlib import Path
from typing import Any
from urllib.parse import quote

from manyheads.runner.charts.chart_spec import Chart
from manyheads.runner.charts.html_page import html_page
from manyheads.runner.option.tree import OPTION
from manyheads.runner.records.keys import varying
from manyheads.runner.records.values import text_of
from manyheads.runner.report.charts import charts
from manyheads.runner.report.columns import Column, shown_columns
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.heading import facts, heading
from manyheads.runner.report.pictures import embedded
from manyheads.runner.report.rows import ReportRow
from manyheads.runner.run.frozen import FlatConfig
from manyheads.runner.wording import counted

TEMPLATE = Path(__file__).with_name("page.html.j2")
FIRST_ROWS = 200  # of the table, which are in the page; further ones are added as one scrolls
RECORDED, PROVENANCE = "provenance.", ("host", "devices", "commit", "clean", "command")


def as_page(
    comparison: Comparison, folder: Path, drawn: list[Chart] | None = None, *, reloads: int | None = None
) -> str:
    """The page as text. ``folder``: where it will be; links to runs are relative to that; ``drawn``: its charts.

    ``reloads``: seconds after which it loads itself again, None for never.
    """
    columns, folder = shown_columns(comparison), folder.resolve()
    noun = "rows" if any(len(row.numbers) > 1 for row in comparison.rows) else "jobs"
    shown = [_row(row, columns, folder) for row in comparison.rows[:FIRST_ROWS]]
    later = (_row(row, columns, folder) for row in comparison.rows[FIRST_ROWS:])
    more = [[row["state"], row["links"], _packed(row["cells"])] for row in later]
    labels = [f"{row.number}: {row.label}" for row in comparison.rows]
    pictures, omitted = embedded(comparison.rows)
    return html_page(
        TEMPLATE,
        heading=heading(comparison),
        kind="comparison",
        headline=comparison.headline,
        facts=facts(comparison),
        comparison=comparison,
        columns=columns,
        rows=shown,
        pictures=pictures,
        omitted=f"{counted(omitted, 'picture')} {'is' if omitted == 1 else 'are'} left out" if omitted else "",
        charts=charts(comparison) if drawn is None else drawn,
        data={"configs": configs(comparison), "noun": noun, "labels": labels, "more": more, "at_once": FIRST_ROWS},
        reloads=reloads,
    )


def configs(comparison: Comparison) -> dict[str, Any]:
    """The rows' configs: ``common`` keys with the same value in all rows, and for each row its ``own`` other keys."""
    several = varying(map(_recorded, comparison.rows))
    own = [_texts(row, several) for row in comparison.rows]
    shared = set(own[0].items()).intersection(*(texts.items() for texts in own)) if own else set()
    for texts in own:
        for key, _ in shared:
            del texts[key]
    common = {key: text for row in comparison.rows[:1] for key, text in _texts(row).items() if key not in several}
    return {"common": dict(sorted({*common.items(), *shared})), "own": own}


def _texts(row: ReportRow, only: Container[str] | None = None) -> dict[str, str]:
    recorded = _recorded(row)
    return {
        key: "null" if recorded[key] is None and not key.startswith(RECORDED) else text_of(recorded[key])
        for key in recorded
        if (only is None or key in only) and not key.endswith(f".{OPTION}")
    }


def _recorded(row: ReportRow) -> FlatConfig:
    """A row's config and where it ran."""
    about: Any = row.first.run.provenance
    origin = {f"{RECORDED}{key}": about[key] for key in PROVENANCE if key in about}
    versions = about.get("versions") or {}
    origin |= {f"{RECORDED}versions.{key}": value for key, value in versions.items()}
    return FlatConfig({**row.first.run.config.sections, RECORDED.removesuffix("."): origin})


def _packed(cells: list[dict[str, Any]]) -> list[Any]:
    """The text of each cell, with the value to sort by if that differs."""
    return [
        column["text"] if column["text"] == str(column["order"]) else [column["text"], column["order"]]
        for column in cells
    ]


def _row(row: ReportRow, columns: list[Column], folder: Path) -> dict[str, Any]:
    cells = []
    for column in columns:
        value = column.value(row)
        order = "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
        cells.append({"text": column.text(row), "order": order, "name": column.name})
    folders = {job.number: job.run.folder for job in reversed(row.jobs)}
    return {
        "cells": cells,
        "links": [(number, _link(folders[number], folder)) for number in row.numbers],
        "state": f"{row.state} best" if row.is_best else row.state,
    }


def _link(target: Path, folder: Path) -> str | None:
    """A link to the folder of a job, None if there is none."""
    return quote(Path(os.path.relpath(target.resolve(), folder)).as_posix()) + "/" if target.is_dir() else None
