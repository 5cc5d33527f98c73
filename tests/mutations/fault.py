"""A fault in the project's code, and the tests that must find it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A text of the code and what it is replaced by.

    ``promise``: part of the row of docs/promises.md that it breaks. ``file``: from the project's folder. ``original``:
    occurs once in it. ``tests``: what pytest is given; `make test-ci` runs all of them.
    """

    name: str
    promise: str
    file: str
    original: str
    replacement: str
    tests: tuple[str, ...]

    def text(self, root: Path = ROOT) -> str:
        """The file's text with the fault. Raises ValueError unless the original occurs once."""
        before = (root / self.file).read_text()
        if (times := before.count(self.original)) != 1:
            raise ValueError(
                f"{self.name}: {self.file} contains {self.original!r} {times} times instead of once. "
                "Adapt the fault to the changed code."
            )
        after = before.replace(self.original, self.replacement)
        compile(after, self.file, "exec")
        return after

    @contextmanager
    def planted(self, root: Path) -> Iterator[None]:
        """The copy of the project below ``root`` has the fault meanwhile."""
        path = root / self.file
        before, faulty, written = path.read_text(), self.text(root), path.stat()
        path.write_text(faulty)
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))  # by which Python finds what it compiled
