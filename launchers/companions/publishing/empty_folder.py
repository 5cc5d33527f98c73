"""The working directory of trackers' clients while they publish: many read settings, or even a database, from it."""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.runner.config.lookup import own_sections
from manyheads.runner.config.project import own_project
from manyheads.runner.errors import printable
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import declared_class
from manyheads.runner.run import scratch
from manyheads.runner.run.seal import is_own_place

if TYPE_CHECKING:
    from manyheads.runner.logger.logger_option import LoggerOption


def is_own() -> bool:
    """Whether the working directory is in a project that the user has marked as their own."""
    return is_own_place(own_project(Path.cwd()))


@contextlib.contextmanager
def in_empty_folder() -> Iterator[None]:
    """A context in which the working directory is an empty folder, unless the present one is the user's own."""
    if is_own():
        yield
        return
    for name in filter(_folders().fullmatch, list(os.environ)):
        os.environ[name] = os.path.abspath(os.environ[name])
    with scratch.folder() as folder:
        empty = folder / "empty"
        empty.mkdir()
        with contextlib.chdir(empty):
            yield


def _folders() -> re.Pattern[str]:
    """The environment variables of this project's trackers whose values are folders, which may be relative."""
    kinds = [declared_class("logger", section) for section in own_sections("logger")]
    packages = [kind.package.upper() for kind in kinds if kind.publishes]
    return re.compile(rf"({'|'.join(packages)})_(\w+_)?DIR")


def tell_unread(trackers: "Iterable[LoggerOption]") -> None:
    """Name, on stderr, the settings files here that these trackers' clients would read, but do not get to see."""
    if is_own():
        return
    for name in dict.fromkeys(name for tracker in trackers for name in tracker.settings):
        if os.path.lexists(name):
            unread = f"{printable(name)} is not read, since you have not marked this folder as your own."
            print(f"{unread} If it is yours, run once: {invocation.command('trust', '.')}", file=sys.stderr)
