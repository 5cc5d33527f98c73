"""The files of a commit of the user's own repository, which base runs.

They are read from git's objects and written to a temporary folder: nothing is checked out, so no hook, filter or
monitor of the repository runs, and its index and worktrees are unchanged.
"""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.provenance.git import EXECUTABLE, LINK, TreeEntry, contents, git
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder


def named_commit(name: str) -> tuple[Path, str]:
    """The folder of the repository around the working directory, and the full hash of a revision of it.

    Raises ConfigurationError if there is none.
    """
    top = git(Path.cwd(), "rev-parse", "--show-toplevel").decode().strip()
    if not top:
        raise ConfigurationError(f"--code {name}: the working directory is not in a git repository.", key="--code")
    commit = git(Path(top), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if not commit:
        raise ConfigurationError(f"--code {name}: {top} has no such revision. Name one, such as HEAD.", key="--code")
    return Path(top).resolve(), commit.decode().strip()


def write_commit(project: Path, commit: str, files: Mapping[PurePosixPath, TreeEntry], tree: Path) -> None:
    """Write these files of a commit into ``tree``, links last, so that no file is written through one.

    Raises ConfigurationError if a file is missing in the repository or cannot be written.
    """
    ordered = sorted(files, key=lambda name: files[name].mode == LINK)
    make_folder(tree)
    for name, content in contents(project, {name: files[name].blob for name in ordered}):
        if content is None:
            raise ConfigurationError(
                f"--code: the repository lacks the content of {printable(name)} at {commit[:10]}. Fetch it with git.",
                key="--code",
            )
        if name.is_absolute() or ".." in name.parts:
            raise ConfigurationError(f"--code: {printable(name)} points outside the repository.", key="--code")
        try:
            _write(tree / name, content, files[name].mode)
        except OSError as error:  # such as a folder and a file of the same name
            raise ConfigurationError(
                f"--code: {printable(name)} of {commit[:10]} cannot be written: {error.strerror}.", key="--code"
            ) from None


def _write(path: Path, content: bytes, mode: bytes) -> None:
    make_folder(path.parent)
    if mode == LINK:
        os.symlink(os.fsdecode(content), path)
        return
    with open(path, "wb", opener=no_link) as file:
        file.write(content)
    os.chmod(path, 0o755 if mode == EXECUTABLE else 0o644)
