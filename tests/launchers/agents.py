"""The command lines with which launchers start other programs."""

import itertools


def follows(command: list[str], name: str) -> list[str]:
    """The values of an option in a command line."""
    return [value for option, value in itertools.pairwise(command) if option == name]
