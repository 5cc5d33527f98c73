"""A revision of the user's own repository, whose code base runs while the change runs the working tree.

Its files are read from git's objects and written to a temporary folder: nothing is checked out, so no hook, filter or
monitor of the repository runs, and its index and worktrees stay as they are. Only ranks import them.
"""

import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.judge.rank.at_revision import AtRevision
from manyheads.runner.option.locate import Section, files_named, packages_named
from manyheads.runner.option.source_file import source_file
from manyheads.runner.provenance.git import blobs, edited, git
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.trust_store import conf_of


@dataclass(frozen=True)
class Revision:
    """``project``: the repository's folder; ``commit``: its full name."""

    project: Path
    commit: str

    @classmethod
    def named(cls, name: str) -> "Revision":
        """A revision of the repository that the working directory is in. Raises ConfigurationError."""
        top = git(Path.cwd(), "rev-parse", "--show-toplevel").decode().strip()
        if not top:
            raise ConfigurationError(f"--code {name}: the working directory is not in a git repository.", key="--code")
        commit = git(Path(top), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if not commit:
            raise ConfigurationError(
                f"--code {name}: {top} has no such revision. Name one, such as HEAD.", key="--code"
            )
        return cls(Path(top).resolve(), commit.decode().strip())

    def changed_files(self) -> list[str]:
        """The files of the revision that differ in the working tree, and those that only the tree has.

        Of the latter those that git tracks, and Python's that it does not ignore: others may be data. What runs have
        kept does not count. Both arms have the same config, so a change of the project's own configs is refused.
        Raises ConfigurationError.
        """
        known = blobs(self.project, self.commit)
        found = sorted(str(name) for name in (*edited(self.project, known), *self._added({*known})))
        if not found:
            raise ConfigurationError(
                f"--code: no file differs from {self.commit[:10]}, so there is nothing to judge.", key="--code"
            )
        conf = conf_of(Path.cwd())
        for name in found:
            if conf is not None and (self.project / name).is_relative_to(conf.resolve()):
                raise ConfigurationError(
                    f"--code: {printable(name)} differs too, and both arms get the configs of the working tree. "
                    "Restore it, or name the difference with --change instead.",
                    key="--code",
                )
        return found

    def _added(self, known: Set[PurePosixPath]) -> set[PurePosixPath]:
        tracked = git(self.project, "ls-files", "-z")
        others = git(self.project, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")
        names = {PurePosixPath(os.fsdecode(name)) for name in (tracked + others).split(b"\0") if name}
        return {name for name in names - known if (self.project / name).is_file() and not self._is_of_run(name)}

    def _is_of_run(self, name: PurePosixPath) -> bool:
        """Whether a run has kept it, as a copy of the code that it executes."""
        return any(RunFolder(self.project / folder).config.is_file() for folder in name.parents)

    @contextmanager
    def files(self) -> Iterator["BaseCode"]:
        """A context in which the repository's files at this revision exist. Raises ConfigurationError."""
        with scratch.folder() as own:
            self._write(own / "code")
            yield BaseCode(self.project, self.commit, own / "code")

    def _write(self, tree: Path) -> None:
        known = blobs(self.project, self.commit)
        content = git(self.project, "cat-file", "--batch", given=b"".join(each + b"\n" for each in known.values()))
        at = 0
        for name in known:
            head, at = content[at : content.index(b"\n", at)], content.index(b"\n", at) + 1
            if head.endswith(b" missing"):
                raise ConfigurationError(
                    f"--code: the repository lacks the content of {printable(name)} at {self.commit[:10]}. Fetch it "
                    "with git.",
                    key="--code",
                )
            size = int(head.split()[2])
            if name.is_absolute() or ".." in name.parts:
                raise ConfigurationError(f"--code: {printable(name)} points outside the repository.", key="--code")
            try:
                make_folder((tree / name).parent)
                with open(tree / name, "wb", opener=no_link) as file:
                    file.write(content[at : at + size])
            except OSError as error:  # such as a folder and a file of the same name
                raise ConfigurationError(
                    f"--code: {printable(name)} of {self.commit[:10]} cannot be written: {error.strerror}.",
                    key="--code",
                ) from None
            at += size + 1


@dataclass(frozen=True)
class BaseCode:
    """A revision's files. ``project``: where they are in the working tree; ``tree``: where they are now."""

    project: Path
    commit: str
    tree: Path

    def redirected(self, config: Any) -> Any:
        """A run config whose files of the repository are those of the revision."""
        if isinstance(config, Mapping):
            return {key: self.redirected(value) for key, value in config.items()}
        if isinstance(config, list):
            return [self.redirected(value) for value in config]
        file = source_file(config)
        if file is None or not file.path.is_relative_to(self.project):
            return config
        return f"{self.tree / file.path.relative_to(self.project)}:{file.name}"

    def folders(self, config: Section) -> list[str]:
        """Where ranks of base look for the user's packages first; none if ``config`` names no code of the repository.

        Somebody may have sent it, and whatever torch tries to import would be found there. Of manyheads itself nothing
        is among them: in its own checkout, both arms run the code that judges.
        """
        here = Path.cwd().resolve()
        within = here.relative_to(self.project) if here.is_relative_to(self.project) else Path()
        found = [*dict.fromkeys(str(self.tree / each) for each in (within, "", "src"))]
        finder = AtRevision(found, str(self.project))
        is_named = any(file.path.is_relative_to(self.tree) for file in files_named(config).values()) or any(
            finder.find_spec(package) for package in packages_named(config)
        )
        return found if is_named else []
