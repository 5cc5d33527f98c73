"""Rank 0's way to the terminal past an agent that would tag its lines, or give it a terminal that is none."""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "MANYHEADS_TERMINAL"


@contextmanager
def passed_on() -> Iterator[dict[str, str]]:
    """The variable that names where rank 0 writes: the terminal itself, or a pipe whose content we pass on."""
    if sys.stdout.isatty():
        yield {VARIABLE: os.ttyname(sys.stdout.fileno())}
        return
    with tempfile.TemporaryDirectory(prefix="manyheads-") as scratch:
        path = Path(scratch) / "stdout"
        os.mkfifo(path)
        # Read and write, so that opening does not wait for the rank, and a rank that opens it twice finds it open.
        pipe = os.open(path, os.O_RDWR)
        copier = threading.Thread(target=_copy, args=(pipe,), daemon=True)
        copier.start()
        try:
            yield {VARIABLE: str(path)}
        finally:
            os.write(pipe, _END)
            copier.join()
            os.close(pipe)


_END = b"\0"  # no text contains it


def _copy(pipe: int) -> None:
    while data := os.read(pipe, 65536):
        text, end, _ = data.partition(_END)
        sys.stdout.write(text.decode(errors="replace"))
        sys.stdout.flush()
        if end:
            return
