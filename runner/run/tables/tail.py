"""Reads a table while it grows."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from manyheads.runner.run.data_files import no_link

MOST_BYTES = 2**22  # read of a table at once


class Tail:
    """The rows added to a CSV file since the last call; all rows if the file was truncated and rewritten."""

    def __init__(self, path: Path):
        self._path = path
        self._offset, self._last, self.columns = 0, b"", list[str]()

    def rows(self) -> Iterator[dict[str, float]]:
        """The numbers of each new row; cells without a number are skipped."""
        for line in csv.reader(io.StringIO(self._lines().decode(errors="replace"))):
            if not self.columns:
                self.columns = line
                continue
            yield {
                name: number
                for name, cell in zip(self.columns, line, strict=False)
                if (number := _number(cell)) is not None
            }

    def _lines(self) -> bytes:
        try:
            file = open(self._path, "rb", opener=no_link)  # noqa: SIM115
        except FileNotFoundError:
            return b""
        with file:
            file.seek(self._offset - len(self._last))
            if file.read(len(self._last)) != self._last:
                self._offset, self.columns = 0, []
            file.seek(self._offset)
            content = file.read(MOST_BYTES)
        lines = content[: content.rfind(b"\n") + 1]
        if lines:
            self._last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
            self._offset += len(lines)
        return lines


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
