"""``manyheads skill``: put the skill for agents, which is in every installation, where they look for it."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.data_files import read_text
from manyheads.runner.run.files import make_folder, write_whole

HELP = "put the skill for agents into .claude/skills or .agents/skills of this folder"
SOURCE = Path(__file__).with_name("SKILL.md").resolve()  # a link in a checkout
READERS = {"claude": ".claude", "agents": ".agents"}  # the folders that they read
LINK = re.compile(r"\[([^\]]+)\]\((?!#|https?:)[^)]*\)")  # to another page, which is not installed


@dataclass(frozen=True)
class InstalledSkill(Answer):
    """Where the skill for agents now is."""

    paths: Annotated[list[str], "the files, one for each kind of reader"]
    written: Annotated[list[str], "those that were not there before, or not the same"]

    def show(self) -> None:
        for path in self.paths:
            print(f"{'wrote' if path in self.written else 'is up to date:'} {printable(path)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("action", choices=["install"], help="install: write the skill")
    parser.add_argument(
        "--for",
        dest="reader",
        choices=[*READERS],
        help="for whom: .claude/skills or .agents/skills; by default those of both folders that are here",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace one that has other content")


def run(arguments: argparse.Namespace) -> InstalledSkill:
    """Write the skill below the working directory. Raises ConfigurationError."""
    present = [name for name, folder in READERS.items() if Path(folder).is_dir()]
    readers = [arguments.reader] if arguments.reader else present
    if not readers:
        raise ConfigurationError(
            "Neither .claude nor .agents is here. Name the one that your agent reads: --for claude, or --for agents.",
            key="--for",
        )
    paths = [Path(READERS[reader]) / "skills" / "manyheads" / "SKILL.md" for reader in readers]
    text = LINK.sub(r"\1", read_text(SOURCE))
    others = [path for path in paths if not path.is_file() or read_text(path) != text]
    if edited := [path for path in others if path.exists() and not arguments.overwrite]:
        raise ConfigurationError(
            f"{printable(edited[0])} has other content, of another version or of yours. Replace it with --overwrite.",
            key="--overwrite",
        )
    for path in others:
        make_folder(path.parent)
        write_whole(path, text)
    return InstalledSkill([*map(str, paths)], [*map(str, others)])
