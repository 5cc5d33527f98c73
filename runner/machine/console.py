"""The terminal as Rich prints on it, for texts that users have written."""

from typing import Any

from rich.console import Console as RichConsole


class Console(RichConsole):
    """Rich's console, but brackets and colons are printed as they stand, instead of as markup, emojis or colours."""

    def __init__(self, **options: Any):
        super().__init__(markup=False, emoji=False, highlight=False, **options)
