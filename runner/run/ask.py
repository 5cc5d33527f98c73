"""A question on the terminal."""

import sys

from manyheads.runner.run.errors import ConfigurationError


def is_confirmed(question: str) -> bool:
    """Whether the user says yes. Raises ConfigurationError where there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask on. Read the above, then add --yes.")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
