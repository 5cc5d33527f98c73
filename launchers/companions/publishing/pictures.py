"""The pictures of a run folder, as they are drawn and replaced."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import matching
from manyheads.runner.run.pictures import MOST_BYTES, step_of
from manyheads.runner.run.run_folder import RunFolder


class DrawnPicture(NamedTuple):
    """A PNG, drawn after ``step`` updates, and its ``digest``."""

    name: str
    png: bytes
    step: int
    digest: str


class PictureFolder:
    """pictures/*.png of one run; one that was replaced before it was read is skipped."""

    def __init__(self, folder: RunFolder):
        self._folder = folder.pictures
        self._times: dict[Path, int] = {}  # of the files that were taken

    def new(self, last: float) -> Iterator[DrawnPicture]:
        """Pictures not taken before, of at most ``last`` updates; one is taken when the next one is asked for."""
        for path in matching(self._folder, "*.png"):
            with suppress(OSError):  # it has just been removed
                time = path.lstat().st_mtime_ns
                if self._times.get(path) == time:
                    continue
                picture = _read(path)
                if picture is not None and picture.step > last:
                    continue
                if picture is not None:
                    yield picture
                self._times[path] = time


def _read(path: Path) -> DrawnPicture | None:
    """The picture in a file; None for what no run has drawn, or is too large."""
    try:
        png = read_bytes(path, most=MOST_BYTES)
    except ConfigurationError:
        return None
    step = step_of(png)
    return None if step is None else DrawnPicture(path.stem, png, step, hashlib.sha256(png).hexdigest())
