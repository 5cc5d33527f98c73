"""``python -m runner clean``: remove runs, or their checkpoints."""

import argparse
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands.clean.removable import Removable, Rules, age, find_removable
from manyheads.runner.errors import ConfigurationError, ExitCode, printable, printable_text
from manyheads.runner.machine.console import print_columns
from manyheads.runner.records.find import OUTPUTS
from manyheads.runner.records.run_summary import summary
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.progress import working
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import is_confirmed, size_in_words

HELP = "remove runs or their checkpoints, after listing which and why"


@dataclass(frozen=True)
class Removal:
    """A folder, or checkpoints of a run, that the rules select."""

    folder: str
    files: Annotated[list[str], "the checkpoints to be removed; empty if the whole folder is"]
    why: str
    frees: Annotated[int, "bytes on the disk"]
    stays: Annotated[str, "why it was not removed after all; empty if it was"] = ""


@dataclass(frozen=True)
class Cleaned(Answer):
    """What was removed, and what was kept although it matches the rules."""

    removals: list[Removal]
    staying: Annotated[list[str], "a sentence for each run that matches but is kept"]
    is_confirmed: Annotated[bool, "false if the user declined, so that nothing was removed"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.is_confirmed else ExitCode.NO

    def show(self) -> None:
        for one in self.removals:
            if one.stays:
                print(printable_text(f"{one.folder} stays: {one.stays}"))
        if not self.is_confirmed:
            print("nothing was removed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", nargs="?", default=str(OUTPUTS), help="where to look (outputs)")
    parser.add_argument("--failed", action="store_true", help="only runs that failed")
    parser.add_argument("--older", metavar="30d", help="only runs unchanged for this long (h, d, w)")
    parser.add_argument("--keep-best", type=int, metavar="N", help="keep the N best, by the metric of their task")
    parser.add_argument("--checkpoints", action="store_true", help="only checkpoints, but never best.pt")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> Cleaned:
    """Remove the runs or checkpoints that match the rules. Raises ConfigurationError."""
    hours = None if arguments.older is None else age(arguments.older)
    rules = Rules(arguments.keep_best, hours, arguments.failed, arguments.checkpoints)
    return clean(Path(arguments.folder), rules, yes=arguments.yes)


def clean(folder: Path, rules: Rules, *, yes: bool) -> Cleaned:
    """List what would be removed from ``folder``, ask unless ``yes``, and remove it. Raises ConfigurationError."""
    top = folder.resolve()
    with working("examining runs"):
        removable, staying = find_removable(top, rules)
    for sentence in staying:
        print(printable_text(sentence))
    if not removable:
        print("nothing to remove")
        return Cleaned([], staying, is_confirmed=True)
    lines = [(size_in_words(one.size), _name(one), printable(one.why)) for one in removable]
    print_columns([("frees", "folder", "why"), *lines])
    what = "runs whose checkpoints are removed" if rules.checkpoints else "folders, with everything in them"
    print(f"{size_in_words(sum(one.size for one in removable))} in total: {len(removable)} {what}")
    if not yes and not is_confirmed("Remove them?"):
        return Cleaned([_removal(one) for one in removable], staying, is_confirmed=False)
    removals = []
    with working("removing", len(removable), kept="what was removed is gone; run clean again for the rest") as work:
        for one in removable:
            reason = ""
            try:
                remove(one, top=top)
            except (ConfigurationError, OSError) as error:
                reason = str(error)
            removals.append(_removal(one, stays=reason))
            work.advance()
    return Cleaned(removals, staying, is_confirmed=True)


def _removal(one: Removable, *, stays: str = "") -> Removal:
    return Removal(str(RunFolder(one.path)), [path.name for path in one.files], one.why, one.size, stays)


def remove(one: Removable, *, top: Path) -> None:
    """Remove a folder or its checkpoints while no other process can use it, then empty parent folders below ``top``.

    top: a path without links. Raises ConfigurationError if a process works on the folder, or if it has changed or was
    replaced since it was examined.
    """
    with ExitStack() as held:
        if Ledger(one.path).exists():
            held.enter_context(Ledger(one.path).locked())
        for run in one.runs:
            if run.folder.config.exists():
                held.enter_context(run.folder.locked())
            now = summary(run.folder)
            if (now.changed, now.result.get("status")) != (run.changed, run.result.get("status")):
                raise ConfigurationError(f"{run.folder} has changed meanwhile: it is {now.status}. Run clean again.")
        parent = held.enter_context(Folder(one.path.parent))
        if one.files:
            folder = held.enter_context(parent.child(one.path.name))
            if folder.inode != one.inode:
                raise ConfigurationError(f"{RunFolder(one.path)} was replaced meanwhile. Run clean again.")
            for path in one.files:
                folder.remove(path.relative_to(one.path))
        else:
            parent.remove(one.path.name, only=one.inode)
    _remove_empty(one.path.parent, top)


def _remove_empty(path: Path, top: Path) -> None:
    with suppress(OSError, ConfigurationError):  # until one is not empty
        while top in path.parents:
            with Folder(path.parent) as parent:
                os.rmdir(path.name, dir_fd=parent.handle)
            path = path.parent


def _name(one: Removable) -> str:
    files = [path.name for path in one.files[:3]] + (["..."] if len(one.files) > 3 else [])
    inner = f": {', '.join(files)}" if files else ""
    return printable(f"{RunFolder(one.path)}{inner}")
