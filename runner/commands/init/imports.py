"""What files of a repository import, found by reading them: files of the repository, and packages that are missing."""

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from manyheads.runner.provenance.own_code import is_installed


class Imports:
    """The imports of the files of a repository.

    folder: of the repository. trees: its parsed files, by path.
    """

    def __init__(self, folder: Path, trees: Mapping[Path, ast.Module]) -> None:
        self._folder, self._trees = folder, trees

    def reached(self, path: Path) -> list[Path]:
        """The file, and the files of the repository that importing it imports, in the order in which they are found."""
        files = [path]
        for file in files:
            names = self._names(self._trees[file])
            files += [one for name, level in names for one in self._files(file, name, level) if one not in files]
        return files

    def missing(self, path: Path) -> list[str]:
        """Packages that importing the file needs and that are not installed."""
        names = {
            name.partition(".")[0]
            for file in self.reached(path)
            for name, level in self._names(self._trees[file], at_import=True)
            if not level and not self._files(file, name, level)
        }
        return sorted(name for name in names if not _is_installed(name))

    def target(self, path: Path, name: str) -> str:
        """What ``_target_`` is for a class: its full name, if its file is part of a package or needs the folder."""
        below = path.relative_to(self._folder)
        needs_folder = any(self._needs_folder(file) for file in self.reached(path))
        if len(below.parts) == 1 or not (needs_folder or below.stem == "__init__"):
            return f"{below}:{name}"
        parts = below.parent.parts if below.stem == "__init__" else below.with_suffix("").parts
        return ".".join([*parts, name])

    def hidden(self, path: Path) -> list[str]:
        """Packages of the repository that the file's full name or imports need, and that installed ones hide."""
        names = {Path(file.relative_to(self._folder).parts[0]).stem for file in self.reached(path)}
        return sorted(name for name in names if is_installed(name, self._folder))

    def _files(self, file: Path, name: str, level: int) -> list[Path]:
        """The files of the repository that importing the name executes, in the first folder that has it."""
        folders = [file.parents[level - 1]] if level else self._path(file)
        parts = name.split(".") if name else []
        for folder in folders:
            paths = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
            candidates = [
                *([folder / "__init__.py"] if level else []),
                *(one for path in paths for one in (path / "__init__.py", path.with_suffix(".py"))),
            ]
            if files := [one for one in candidates if one in self._trees and one != file]:
                return files
        return []

    def _path(self, file: Path) -> list[Path]:
        """Where a file's absolute imports are looked up: first beside it, unless it is in a package."""
        folders = [file.parent, self._folder]
        return folders[::-1] if file.parent / "__init__.py" in self._trees else folders

    def _needs_folder(self, file: Path) -> bool:
        """Whether the file has relative imports, or imports that are found from the repository's folder alone."""
        for name, level in self._names(self._trees[file]):
            files = self._files(file, name, level)
            beside = file.parent / name.partition(".")[0]
            if level or (files and not any(beside in (one, *one.parents, one.with_suffix("")) for one in files)):
                return True
        return False

    def _names(self, tree: ast.Module, *, at_import: bool = False) -> Iterator[tuple[str, int]]:
        """Imported modules, and names in them, with the level of relative imports.

        ``at_import``: only those that importing the file executes for certain: in no branch, and not attempted.
        """
        for node in tree.body if at_import else ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, 0) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (
                    (".".join(filter(None, (node.module, alias.name.strip("*")))), node.level) for alias in node.names
                )


def _is_installed(name: str) -> bool:
    """Whether the top-level name can be imported. Nothing is imported to find out."""
    try:
        return name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True  # imported already, such as __main__
