"""The user's own code: which files run, and at which commit they are. Nothing is imported to find out."""

import ast
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.invocation import ROOT
from manyheads.runner.option.locate import own_folders
from manyheads.runner.option.source_file import source_file
from manyheads.runner.option.tree import Section, files_named, packages_named, targets
from manyheads.runner.provenance.git import blobs, edited, git
from manyheads.runner.run import seal


def own_code(config: Section) -> dict[str, str]:
    """sha256 of the code behind each named class that is neither this project's nor an installed library's.

    By top-level package, and by the path of each file of ``own_files``. Code that cannot be found is skipped here; the
    run reports it.
    """
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in own_files(config)}
    for package in sorted(packages_named(config)):
        if files := _files_of(package):
            digest = hashlib.sha256()
            for path in files:
                digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
            digests[package] = digest.hexdigest()
    return digests


def own_files(config: Any) -> list[Path]:
    """The files that a config names, the files of the user's own that they import, and the project's configs."""
    waiting = [file.path for file in files_named(config).values() if file.path.is_file()]
    for _, target in targets(config):
        if source_file(target) is None and _files_of(target.partition(".")[0]):
            waiting += _module(target, own_folders())
    files: dict[Path, None] = {}
    while waiting:
        path = waiting.pop()
        if path not in files:
            files[path] = None
            waiting += _imported_by(path)
    return sorted({*files, *_configs()})


def own_origin(config: Any) -> dict[str, object] | None:
    """The folder of the user's code, with its commit, and whether its files are unchanged; None if there is no code.

    ``commit`` and ``clean`` are None outside git, and if git tracks none of the files; one that it does not track is a
    change.
    """
    files = [path for path in own_files(config) if path.suffix == ".py" and not path.is_relative_to(ROOT)]
    if not files:
        return None
    folder = Path(os.path.commonpath([path.parent for path in files]))
    return {"folder": str(folder), **_commit_of(folder, tuple(files))}


@cache
def _commit_of(folder: Path, files: tuple[Path, ...]) -> dict[str, object]:
    """Commit and state of the files at the first run that this process starts, as for this project's own code."""
    folder = folder.resolve()
    names = [os.path.relpath(path.resolve(), folder) for path in files]
    commit = git(folder, "rev-parse", "HEAD").decode().strip()
    tracked = git(folder, "--literal-pathspecs", "ls-files", "-z", "--", *names).split(b"\0")
    if not commit or not {*map(os.fsencode, names)} & {*tracked}:
        return {"commit": None, "clean": None}
    committed = blobs(folder, commit, *names)
    return {"commit": commit, "clean": len(committed) == len({*names}) and not edited(folder, committed)}


def _imported_by(path: Path) -> Iterator[Path]:
    """The user's own files that a file imports; none if it cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(alias.name, [str(path.parent), *own_folders()])
        elif isinstance(node, ast.ImportFrom):
            folders = [str(path.parents[node.level - 1])] if node.level else [str(path.parent), *own_folders()]
            for alias in node.names:
                yield from _module(
                    ".".join(filter(None, (node.module, alias.name))), folders, is_relative=node.level > 0
                )


def _module(name: str, folders: list[str], *, is_relative: bool = False) -> list[Path]:
    """The files that importing ``name``, a module or a name in one, executes, in the first folder that has it.

    [] for an installed module, which is found before the user's own, and for files of this project.
    """
    first, *_ = parts = name.split(".")
    for folder in map(Path, folders):
        if not (folder / f"{first}.py").is_file() and not (folder / first).is_dir():
            continue
        if not is_relative and is_installed(first, folder):
            return []
        files = []
        for count in range(1, len(parts) + 1):
            path = folder.joinpath(*parts[:count])
            files += [file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()][:1]
        return [path for path in files if _is_own(path)]
    return []


@cache
def is_installed(name: str, folder: Path) -> bool:
    """Whether importing ``name`` imports something other than what is in the user's folder."""
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    spec = PathFinder.find_spec(name, [entry for entry in sys.path if entry not in ("", str(folder))])
    return spec is not None and spec.origin is not None  # a folder without __init__.py gives way to a package


def _files_of(package: str) -> list[Path]:
    """The code of a package; [] if it is this project's or installed, since versions are recorded for those."""
    spec = PathFinder.find_spec(package, [*sys.path, *own_folders()])
    if spec is None:
        return []
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not folders:
        module = Path(spec.origin or "")
        return [module] if module.suffix == ".py" and _is_own(module) else []
    return sorted(path for folder in folders if _is_own(folder) for path in folder.rglob("*.py"))


def _configs() -> Iterator[Path]:
    """The configs of the project that the user is in, if they were read."""
    try:
        conf = conf_of(Path.cwd())
    except ConfigurationError:  # composing the config reports it
        return
    if conf is not None and _is_own(conf.resolve()) and seal.is_own_place(conf):
        yield from (path for path in conf.resolve().rglob("*.yaml") if path.is_file() and not path.is_symlink())


def _is_own(path: Path) -> bool:
    return not path.is_relative_to(ROOT) and not {"site-packages", "dist-packages"} & set(path.parts)


def in_words(provenance: Mapping[str, Any]) -> str:
    """Folder and state of the user's own code as recorded; empty if there was none."""
    code = provenance.get("own")
    if not isinstance(code, dict):
        return ""
    if not code.get("commit"):
        return f"{code.get('folder')}: not in git"
    changes = "clean" if code.get("clean") else "with uncommitted changes"
    return f"{code.get('folder')}: commit {str(code['commit'])[:10]}, {changes}"
