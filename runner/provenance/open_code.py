"""Whether others can replace what the user's own runs name: a folder, or a file and what it imports."""

from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.machine.ownership import is_mine
from manyheads.runner.option.tree import Section, files_named
from manyheads.runner.provenance.own_code import own_files
from manyheads.runner.run import seal


def is_trusted_place(path: Path) -> bool:
    """Whether what the user's own runs name may be looked up there: only the user writes to it, or trusts it."""
    return is_mine(path) or seal.is_own_place(path)


def open_place(config: Section) -> Path | None:
    """Where others can replace a file of the user's that a config names or imports; None if they can't.

    A file, its folder, since Python looks there for what the file imports, or the folder of its bytecode.
    """
    files = [*(file.path for file in files_named(config).values()), *own_files(config)]
    places = (
        candidate
        for path in dict.fromkeys(files)
        if path.suffix == ".py"
        for candidate in (path.parent, path, path.parent / "__pycache__")
    )
    return next((candidate for candidate in places if candidate.exists() and not is_trusted_place(candidate)), None)


def refuse_open_place(config: Section) -> None:
    """Raises ConfigurationError if others can replace a file of the user's that a config names or imports."""
    if (opening := open_place(config)) is not None:
        raise ConfigurationError(
            f"others can write to {opening}, so the code that this run imports from there may not be yours. "
            f"{how_to_trust(opening)}."
        )


def how_to_trust(opening: Path) -> str:
    """What to do if the user trusts a place that others can write to."""
    folder = opening if opening.is_dir() else opening.parent
    return f"If you trust everything in {folder}, run once: {invocation.command('trust', folder)}"
