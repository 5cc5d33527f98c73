"""Reads and writes files in folders that may come from anybody, or to which others write too, as data only.

They are opened through ``Folder``, so that no link is followed; no more is read than a limit; texts come with their
control characters written out. Paths are those of ``Folder``. docs/security.md says why.
"""

import gc
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable, printable_text
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.folder import MOST_BYTES, Folder

MOST_TABLE_BYTES = 2**31  # of a table of numbers


@contextmanager
def without_collector() -> Iterator[None]:
    """A context without garbage collection; processes forked in it have none until they enable it.

    Reading thousands of files creates no cycles, but searching for them takes a quarter of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def no_link(path: str, flags: int) -> int:
    """An opener for ``open()``, for plain files in a folder that may be somebody else's. Raises as ``Folder.plain``."""
    with Folder(Path(path).parent) as folder:
        return folder.plain(Path(path).name, flags)


def read_bytes(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """A file's content. Raises as ``Folder.read``."""
    with Folder(path.parent) as folder:
        return folder.read(path.name, most=most)


def read_text(path: Path, *, most: int = MOST_BYTES) -> str:
    """A file's text, with invalid UTF-8 replaced. Raises as ``Folder.read``."""
    return read_bytes(path, most=most).decode(errors="replace")


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file that anybody may have written, its texts with control characters written out.

    Raises ConfigurationError if it holds none, and OSError if it can't be read.
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
    """Parse JSON; control characters in texts are escaped. Raises ValueError, RecursionError."""
    return printable_texts(json.loads(text), text)


def printable_texts(content: Any, text: str) -> Any:
    """What was parsed from ``text``, with control characters in its keys and values escaped."""
    is_plain = "\\" not in text and text.replace("\n", "").isprintable()
    return content if is_plain else _printable(content)


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return printable_text(value) if isinstance(value, str) else value


def cell(value: object) -> object:
    """A cell of a table: control characters in texts are escaped, and no spreadsheet evaluates it.

    Texts such as =HYPERLINK(...) get an apostrophe in front. Numbers are unchanged, and so are bytes of a file's name
    that are not UTF-8.
    """
    if not isinstance(value, str):
        return value
    if not value.isprintable():
        value = re.sub(r"[^\udc80-\udcff]+", lambda part: printable_text(part[0]), value)
    if not value.startswith(("=", "+", "-", "@", "\t", "\n", *"＝＋－＠")):
        return value
    return value if re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", value, re.ASCII) else f"'{value}"


LINE = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """A context in which all log messages of level INFO and above go to this file, and nowhere else."""
    make_folder(path.parent)
    with open(path, "a", opener=no_link) as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter(LINE))
        root = logging.getLogger()
        level, handlers = root.level, root.handlers
        root.handlers = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.setLevel(level)
            root.handlers = handlers
            handler.close()
