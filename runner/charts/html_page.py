"""Self-contained pages of HTML, without a network or a server: their frame, their style, and their charts."""

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.charts.chart_spec import Chart

HERE = Path(__file__).parent
STYLE = HERE / "page.css"
TEMPLATE, SCRIPT = ".html.j2", ".js"
LINE_CHARTS = HERE / "line_charts.js"


def html_page(
    template: Path, *, heading: str, kind: str, charts: Sequence[Chart], data: Mapping[str, Any], **shown: Any
) -> str:
    """The page as text.

    ``template``: extends frame.html.j2; a script of the same name beside it draws charts other than lines. ``heading``,
    ``kind``: the title. ``data``: what the script reads in addition to the charts. ``shown``: what the template reads,
    such as the frame's ``headline`` and ``facts``.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([template.parent, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = template.with_name(template.name.removesuffix(TEMPLATE) + SCRIPT)
    scripts = [HERE / "axes.js", HERE / "chart.js", script if script.exists() else LINE_CHARTS]
    return environment.get_template(template.name).render(
        heading=heading,
        kind=kind,
        charts=charts,
        data=as_script({"charts": charts, **data}),
        style=STYLE.read_text(),
        scripts=[path.read_text() for path in scripts] if charts or script.exists() else [],
        **{"reloads": None, **shown},
    )


def as_script(content: Any) -> str:
    """JSON that cannot end the script element that contains it; non-finite numbers are null."""
    try:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"), default=_plain)
    except ValueError:  # there are non-finite numbers
        text = json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _finite(content: Any) -> Any:
    if is_dataclass(content):
        content = _plain(content)
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, array)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _plain(part: Any) -> dict[str, Any] | list[float]:
    """A part of a chart, or an array of points, as JSON has it: made when it is written, and not kept."""
    return {field.name: getattr(part, field.name) for field in fields(part)} if is_dataclass(part) else list(part)
