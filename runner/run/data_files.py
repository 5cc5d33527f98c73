"""Files in a folder that may come from anybody, or that others write to as well: data, and never a way elsewhere.

No link is followed where a file is opened, neither the file itself nor the folder that it lies in; no more is read than
a limit; texts come with their control characters written out. docs/security.md says why.
"""

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from manyheads.runner.run.errors import ConfigurationError, printable

MOST_BYTES = 2**24  # of a file that is read whole
MOST_VALUES = 10_000  # in a YAML file, with every alias written out
MOST_TABLE_BYTES = 2**31  # of a table of numbers
_LINK = (errno.ELOOP, errno.EMLINK)  # how systems say that the last part of a path is a link


def no_link(path: str, flags: int) -> int:
    """An opener for ``open()`` to write, or to read, a plain file that has this name only.

    Raises ConfigurationError for a link, a hard one included where it would be written to, a pipe or a device.
    """
    truncates, flags = flags & os.O_TRUNC, flags & ~os.O_TRUNC
    handle = open_entry(Path(path), flags | os.O_NONBLOCK)  # a pipe that nobody reads would wait for ever
    status = os.fstat(handle)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not stat.S_ISREG(status.st_mode) or (writes and status.st_nlink > 1):
        os.close(handle)
        raise _refusal(Path(path))
    if truncates:
        os.ftruncate(handle, 0)
    return handle


def read_bytes(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """A file that anybody may have written. Raises ConfigurationError, and OSError where it can't be read.

    No link is followed, and no more than ``most`` bytes are taken.
    """
    with open(path, "rb", opener=no_link) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ConfigurationError(f"{printable(path)} has more than {most} bytes, and is not read.")
    return content


def read_text(path: Path, *, most: int = MOST_BYTES) -> str:
    """The text of such a file, as ``read_bytes`` takes it; what is no UTF-8 is replaced."""
    return read_bytes(path, most=most).decode(errors="replace")


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file that anybody may have written, its texts with control characters written out.

    Raises ConfigurationError where it holds none, and OSError where it can't be read.
    """
    text = read_text(path)
    try:
        content = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{printable(path)} cannot be read: {error}. Restore it from a copy.") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{printable(path)} cannot be read: it is not a mapping. Restore it from a copy.")
    return content


def parse_json(text: str) -> Any:
    """What JSON says, its texts with control characters written out. Raises ValueError, RecursionError."""
    return _printable(json.loads(text))


def parse_yaml(text: str, loader_class: Any) -> Any:
    """What YAML makes of the text. Raises ValueError for aliases that make more of it than anybody writes."""
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _nodes(node, {}) > MOST_VALUES:
            raise ValueError(f"with its aliases expanded it has more than {MOST_VALUES} values")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _nodes(node: yaml.Node, counted: dict[int, float]) -> float:
    """How many there are from this one down, each alias counted as what it stands for."""
    if id(node) not in counted:
        counted[id(node)] = math.inf  # if it is found again below itself
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        inner = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        counted[id(node)] = 1 + sum(_nodes(each, counted) for each in inner)
    return counted[id(node)]


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def no_formula(value: object) -> object:
    """A cell that no spreadsheet computes: of texts such as =HYPERLINK(...) an apostrophe makes plain text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def refuse_links(folder: Path) -> None:
    """Raises ConfigurationError for a link out of ``folder`` anywhere below it, and for folders that can't be listed.

    Writing into a folder must not be writing anywhere else.
    """
    inside = folder.resolve()
    try:
        for parent, names, files in os.walk(folder, onerror=_raise):
            for path in (Path(parent, name) for name in (*names, *files)):
                if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(inside):
                    raise ConfigurationError(f"{printable(path)} points outside {printable(folder)}. Remove that link.")
                if not path.is_symlink() and stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                    raise _refusal(path)
    except OSError as error:  # such a folder may still be entered, through a link that nobody sees
        raise ConfigurationError(f"{printable(error.filename)} cannot be read: {error.strerror}.") from None


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """The folder that ``path`` lies in, whatever takes its name meanwhile. Raises ConfigurationError for a link."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in _LINK or path.parent.is_symlink():
            raise _refusal(path.parent) from None
        raise
    try:
        yield folder
    finally:
        os.close(folder)


def open_entry(path: Path, flags: int) -> int:
    """A descriptor of what has this name, of whatever kind it is but a link. Raises ConfigurationError, OSError."""
    with opened_folder(path) as folder:
        try:
            return os.open(path.name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno in (*_LINK, errno.ENXIO):
                raise _refusal(path) from None
            raise OSError(error.errno, error.strerror, str(path)) from None


def _refusal(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{printable(path)} is a link or not a plain file, and could point outside its folder. Replace it with a copy."
    )
