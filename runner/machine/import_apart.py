"""Imports torch and Matplotlib apart from the working directory, which may be a folder that somebody sent.

NVIDIA's libcusparseLt, which `import torch` loads, looks for libcuda.so.1 in the working directory, since its RUNPATH
has an empty entry: a library of that name there would run code. Matplotlib reads matplotlibrc from there too.
So commands and ranks import both from the root folder, where only the superuser can write, whichever module imports
them first. A user's own process that imports this project stays as it is.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SETTINGS = "matplotlibrc"


@contextmanager
def in_root_folder() -> Iterator[None]:
    """A context whose working directory is the root folder. Relative paths must be resolved before."""
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.close(before)


class Finder:
    """An entry of ``sys.meta_path`` that imports torch and Matplotlib in the root folder; other entries find them."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in ("torch", "matplotlib"):
            return None
        others: list[Any] = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_apart(module: ModuleType) -> None:
            if name == "matplotlib" and os.path.lexists(SETTINGS):
                print(f"{SETTINGS} of the working directory is not read: MATPLOTLIBRC can name one", file=sys.stderr)
            with in_root_folder():
                execute(module)

        spec.loader.exec_module = execute_apart
        return spec


def install() -> None:
    """Import both apart from now on, in this process."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
