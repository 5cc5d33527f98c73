"""Passes rank 0's output to the terminal, bypassing an agent that would prefix its lines or replace its terminal."""

import codecs
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from manyheads.launchers import scratch

VARIABLE = "MANYHEADS_TERMINAL"


@contextmanager
def passed_on() -> Iterator[dict[str, str]]:
    """The variable that names where rank 0 writes: the terminal itself, or a pipe whose content we pass on."""
    if sys.stdout.isatty():
        yield {VARIABLE: os.ttyname(sys.stdout.fileno())}
        return
    with scratch.folder() as own:
        path = own / "stdout"
        os.mkfifo(path)
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # would otherwise wait for somebody to write
        os.set_blocking(source, True)
        kept_open = os.open(path, os.O_WRONLY)
        copier = threading.Thread(target=_copy, args=(source,), daemon=True)
        copier.start()
        try:
            yield {VARIABLE: str(path)}
        finally:
            os.close(kept_open)  # the pipe ends when rank 0 has ended too
            copier.join(timeout=5)
            os.close(source)


def _copy(source: int) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while data := os.read(source, 65536):
        with suppress(OSError, ValueError):  # nobody listens any more; rank 0 must not wait for that
            sys.stdout.write(decoder.decode(data))
            sys.stdout.flush()
