"""Classes in a file that the user named by its path: ``/home/me/my_model.py:Net`` in place of a dotted name."""

import hashlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

COPIES = "MANYHEADS_COPIES"  # for this process and the ranks: folders of copies, a line each, that replace files

# Absolute paths only: what a name means may not depend on the working directory.
_NAME = re.compile(r"(/(?!/)[^\0]*\.py):([^\W\d]\w*)")


class SourceFile(NamedTuple):
    """A class, or another object, with this ``name`` in the file at ``path``."""

    path: Path
    name: str

    def in_use(self) -> Path:
        """The file that is executed: its copy, if a run is resumed whose files others can replace."""
        folders = filter(None, os.environ.get(COPIES, "").split("\n"))
        copies = (Path(folder, *self.path.parts[1:]) for folder in folders)
        return next((copy for copy in copies if copy.is_file()), self.path)

    def load(self) -> Any:
        """Execute the file; returns the object. Raises FileNotFoundError, AttributeError, and what the file raises."""
        return getattr(_module(self.in_use()), self.name)


def source_file(target: Any) -> SourceFile | None:
    """The file that a ``_target_`` names; None for a dotted name."""
    match = _NAME.fullmatch(target) if isinstance(target, str) else None
    return SourceFile(Path(match[1]), match[2]) if match and os.path.normpath(match[1]) == match[1] else None


def is_copy(path: Path) -> bool:
    """Whether the file is a copy in a run folder. Bytecode beside it is neither read nor written: no seal covers it."""
    return any(parent.name == "code" and (parent.parent / "run.yaml").exists() for parent in path.parents)


def _module(path: Path) -> ModuleType:
    """Import the file under its bare name, as files beside it do; under another one if that name is another module's.

    Adds its folder to the import path, before everything that is installed, as Python does for a script; but after
    Python's own modules, none of which a file hides.
    """
    if not path.is_file():
        raise FileNotFoundError(path)
    if is_copy(path):
        sys.pycache_prefix = os.devnull
    if str(path.parent) not in sys.path:
        sys.path.insert(_first_installed(), str(path.parent))
    if _is_found(path):
        return importlib.import_module(path.stem)
    name = re.sub(r"\W", "_", path.stem) + f"_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _first_installed() -> int:
    """Where the import path's folders of installed packages begin."""
    places = (at for at, path in enumerate(sys.path) if Path(path).name in ("site-packages", "dist-packages"))
    return next(places, len(sys.path))


def _is_found(path: Path) -> bool:
    """Whether importing the file's bare name gives this file."""
    try:
        spec = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    except ValueError:  # a module of that name exists that was not imported, such as __main__
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin) == path
