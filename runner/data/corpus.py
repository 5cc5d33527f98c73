"""The files of a text, divided into splits by a hash of their names: the same on every machine."""

import hashlib
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from manyheads.runner.data.left_out import NOTHING, LeftOut
from manyheads.runner.data.links import nearest_path
from manyheads.runner.errors import ConfigurationError

SPLITS = ("train", "val", "test")
# Packages of the standard library that some distributions omit.
LEFT_OUT = {"antigravity", "distutils", "ensurepip", "idlelib", "lib2to3", "test", "this", "tkinter", "turtledemo"}

Files = Mapping[str, Path]  # by name, in the order of the names


def standard_library() -> Files:
    """The standard library of this Python, without tests and generated modules."""
    root = Path(sysconfig.get_path("stdlib"))
    wanted = {name for name in sys.stdlib_module_names if not name.startswith("_sysconfigdata")} - LEFT_OUT
    modules: dict[str, Path] = {}
    for name in sorted(wanted):
        if (module := root / f"{name}.py").is_file():
            modules[module.name] = module
        for path in sorted((root / name).rglob("*.py")):
            below = path.relative_to(root)
            if not {"test", "tests", "__pycache__"} & {*below.parts}:
                modules[below.as_posix()] = path
    return modules


def below(root: Path, pattern: str) -> Files:
    """The files that match below ``root``, or ``root`` itself. Raises ConfigurationError if there are none."""
    if root.is_file():
        return {root.name: root}
    if not root.is_dir():
        raise ConfigurationError.at(
            "data.root", root, f": there is no such file or folder.{nearest_path(root)} Set it to your text."
        )
    try:
        files = {p.relative_to(root).as_posix(): p for p in sorted(root.glob(pattern)) if p.is_file()}
    except (ValueError, NotImplementedError) as error:  # the latter for an absolute path
        message = f": {error}. Set it to a pattern of names below data.root, such as **/*.md."
        raise ConfigurationError.at("data.pattern", pattern, message) from None
    if not files:
        raise ConfigurationError.at(
            "data.root",
            root,
            f": no file there matches data.pattern={pattern}. Set data.root to a text file or a "
            "folder of them, and data.pattern to a pattern of their names, such as **/*.md.",
        )
    return files


def beside_splits(files: Files) -> LeftOut:
    """The files outside the folders of splits, which therefore are not taken as such, if there are some of both."""
    tops = {name.partition("/")[0] for name in files}
    return LeftOut.of(n for n in files if n.partition("/")[0] not in SPLITS) if {"train", "val"} <= tops else NOTHING


def split_of(files: Files, split: str, *, val_fraction: float, test_fraction: float) -> Files:
    """The files of one split: those in the folder of its name if all are in such folders, else chosen by a hash."""
    tops = {name.partition("/")[0] for name in files}
    if {"train", "val"} <= tops <= {*SPLITS}:
        return {name: path for name, path in files.items() if name.startswith(f"{split}/")}
    bounds = {"val": (0.0, val_fraction), "test": (val_fraction, val_fraction + test_fraction)}
    low, high = bounds.get(split, (val_fraction + test_fraction, 1.0))
    return {name: path for name, path in files.items() if low <= _place(name) < high}


def _place(name: str) -> float:
    """A number from 0 to 1, from the file's name alone."""
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:4], "big") / 2**32
