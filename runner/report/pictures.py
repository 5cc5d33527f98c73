"""What the models of a comparison draw: the last pictures of each row's first run, embedded in the page."""

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.report.rows import ReportRow
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import matching
from manyheads.runner.run.pictures import SIGNATURE, step_of
from manyheads.runner.run.run_folder import RunFolder

MOST_BYTES = 4 * 2**20  # of all pictures of a page
MOST_EACH = 2**20


class EmbeddedPicture(NamedTuple):
    """A picture, ``source`` as a data: URL, of the row at this position."""

    name: str
    row: int
    caption: str
    source: str


def embedded(rows: Sequence[ReportRow]) -> tuple[dict[str, list[EmbeddedPicture]], int]:
    """The pictures of these rows by name, and how many were left out, since they or all of them are too large."""
    left, omitted, pictures = MOST_BYTES, 0, dict[str, list[EmbeddedPicture]]()
    for at, row in enumerate(rows):
        try:
            paths = matching(RunFolder(row.first.run.folder).pictures, "*.png")
        except OSError:  # a folder that somebody else has sent may hold anything under this name
            continue
        for path in paths:
            try:
                png = read_bytes(path, most=min(MOST_EACH, left))
            except ConfigurationError:
                omitted += 1
                continue
            except OSError:  # it was replaced by something else
                continue
            if not png.startswith(SIGNATURE):
                continue
            left -= len(png)
            step, name = step_of(png), printable(path.stem)
            caption = f"{row.number}: {row.label}" + ("" if step is None else f", after {step:,} updates")
            source = f"data:image/png;base64,{b64encode(png).decode()}"
            pictures.setdefault(name, []).append(EmbeddedPicture(name, at, caption, source))
    return dict(sorted(pictures.items())), omitted
