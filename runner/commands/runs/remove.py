"""``clean``: say what would go, ask, and remove it."""

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from manyheads.runner.commands.runs.folder_sizes import size_in_words
from manyheads.runner.commands.runs.list_runs import show
from manyheads.runner.commands.runs.removable import Going, Rules, going
from manyheads.runner.commands.runs.run_summary import summary
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import is_confirmed


def clean(folder: Path, rules: Rules, *, yes: bool) -> int:
    """Return 0 when it is done, or there is nothing to do, 1 when the user said no. Raises ConfigurationError."""
    top = folder.resolve()
    found, staying = going(top, rules)
    for sentence in staying:
        print(printable(sentence))
    if not found:
        print("nothing to remove")
        return 0
    show([("frees", "folder", "why"), *((size_in_words(one.size), _name(one), printable(one.why)) for one in found)])
    what = "runs whose checkpoints are removed" if rules.checkpoints else "folders, with everything in them"
    print(f"{size_in_words(sum(one.size for one in found))} in total: {len(found)} {what}")
    if not yes and not is_confirmed("Remove them?"):
        print("nothing was removed")
        return 1
    for one in found:
        try:
            remove(one, top=top)
        except (ConfigurationError, OSError) as error:
            print(printable(f"{_name(one)} stays: {error}"))
    return 0


def remove(one: Going, *, top: Path) -> None:
    """Remove it while no other process can work on it, and then empty parent folders below ``top``.

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
    with suppress(OSError, ConfigurationError):  # one of them holds something else
        while top in path.parents:
            with Folder(path.parent) as parent:
                os.rmdir(path.name, dir_fd=parent.handle)
            path = path.parent


def _name(one: Going) -> str:
    inner = f": {', '.join(path.name for path in _few(one.files))}" if one.files else ""
    return printable(f"{RunFolder(one.path)}{inner}").replace("\n", "\\n")


def _few(files: Sequence[Path]) -> list[Path]:
    return [*files[:3], *([Path("...")] if len(files) > 3 else [])]
