"""run.log: what rank 0 shows on the terminal, line by line with the time, so that ``tail -f`` follows a run."""

import io
import time
from contextlib import suppress
from pathlib import Path

from manyheads.runner.logger.terminal import Display, Terminal
from manyheads.runner.machine.console import Console
from manyheads.runner.run.data_files import no_link

WIDTH = 120  # of tables


class Stamped(io.TextIOBase):
    """A text file that appends each complete line to a log, with the time in the format of the parent's lines."""

    def __init__(self, path: Path):
        self._path, self._rest = path, ""

    def write(self, text: str) -> int:
        """Raises nothing: a log that cannot be written must not end a run."""
        *lines, self._rest = (self._rest + text).split("\n")
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f",{int(now % 1 * 1000):03}"
        content = "".join(f"[{stamp}] {line.rstrip()}\n" for line in lines)
        with suppress(OSError, ValueError), open(self._path, "a", opener=no_link) as file:
            file.write(content)
        return len(text)

    def isatty(self) -> bool:
        return False


def log_display(path: Path) -> Terminal:
    """The display that writes this log."""
    console = Console(
        file=Stamped(path),  # which rich only writes to
        width=WIDTH,
        force_terminal=False,
        color_system=None,
        _environ={},  # settings of the user's terminal do not apply to a file
    )
    return Terminal(console)


class Both(Display):
    """Shows everything twice: on the terminal, and in the log."""

    def __init__(self, terminal: Display, log: Display):
        self._terminal, self._all = terminal, (terminal, log)
        self.update = terminal.update  # type: ignore[method-assign]  # called very often, and not for a log

    def header(self, lines: dict[str, str]) -> None:
        for display in self._all:
            display.header(lines)

    def start(self, *, done: int, total: int) -> None:
        for display in self._all:
            display.start(done=done, total=total)

    def phase(self, text: str) -> None:
        for display in self._all:
            display.phase(text)

    def interval(self, step: int, words: dict[str, str]) -> None:
        for display in self._all:
            display.interval(step, words)

    def epoch(self, words: list[str]) -> None:
        for display in self._all:
            display.epoch(words)

    def say(self, message: str) -> None:
        for display in self._all:
            display.say(message)

    def table(self, title: str, rows: dict[str, str]) -> None:
        for display in self._all:
            display.table(title, rows)

    def stop(self) -> None:
        for display in self._all:
            display.stop()
