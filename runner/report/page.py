"""comparison.html: one page that needs nothing else, neither network nor server."""

import json
import math
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from manyheads.runner.report.charts import charts
from manyheads.runner.report.columns import Column, shown_columns
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.keys import text_of
from manyheads.runner.report.rows import Row

HERE = Path(__file__).parent
PROVENANCE = ("host", "devices", "commit", "clean", "command")


def as_page(comparison: Comparison, folder: Path) -> str:
    """The page as text. ``folder``: where it will lie; its links to runs are relative to that."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    drawn = charts(comparison)
    columns = shown_columns(comparison)
    return environment.get_template("page.html.j2").render(
        comparison=comparison,
        columns=columns,
        rows=[_row(row, columns, folder) for row in comparison.rows],
        charts=drawn,
        data=as_script({"charts": drawn, "configs": configs(comparison)}),
        style=(HERE / "page.css").read_text(),
        script=(HERE / "page.js").read_text(),
        plotly=get_plotlyjs() if drawn else "",
    )


def as_script(content: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def configs(comparison: Comparison) -> dict[str, Any]:
    """``common``: keys that all rows share; ``own``: for each row, the others. A key that a row lacks is left out."""
    flat = [_describe(row) for row in comparison.rows]
    shared = set.intersection(*(set(config.items()) for config in flat)) if flat else set()
    common = {key for key, _ in shared}
    own = [{key: value for key, value in config.items() if key not in common} for config in flat]
    return {"common": dict(sorted(shared)), "own": own}


def _describe(row: Row) -> dict[str, str]:
    run = row.first.run
    found = {key: "null" if value is None else text_of(value) for key, value in run.config.items()}
    found |= {f"provenance.{key}": text_of(run.provenance[key]) for key in PROVENANCE if key in run.provenance}
    versions = run.provenance.get("versions") or {}
    return found | {f"provenance.versions.{key}": text_of(value) for key, value in versions.items()}


def _row(row: Row, columns: list[Column], folder: Path) -> dict[str, Any]:
    cells = []
    for column in columns:
        value = column.value(row)
        order = "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
        cells.append({"text": column.text(row), "order": order, "name": column.name})
    target = os.path.relpath(row.first.run.folder, folder.absolute())
    link = quote(Path(target).as_posix()) + "/" if row.first.run.folder.is_dir() else None
    return {"cells": cells, "link": link, "label": f"{row.number}: {row.label}", "state": row.state}
