"""The terminal as Rich prints on it, for texts that users have written."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console as RichConsole


class Console(RichConsole):
    """Rich's console, but brackets and colons are printed as they stand, instead of as markup, emojis or colours."""

    def __init__(self, **options: Any):
        super().__init__(markup=False, emoji=False, highlight=False, **options)


def print_columns(lines: Sequence[Sequence[str]]) -> None:
    """Print lines in columns, titles first, without empty columns; on a terminal, long lines are cut off."""
    shown = [index for index in range(len(lines[0])) if any(line[index] for line in lines[1:])]
    widths = {index: max(cell_len(line[index]) for line in lines) for index in shown}
    console = Console()
    for line in lines:
        text = "  ".join(set_cell_size(line[index], widths[index]) for index in shown).rstrip()
        if console.is_terminal and cell_len(text) > console.width:
            text = set_cell_size(text, console.width - 1) + "…"
        print(text)
