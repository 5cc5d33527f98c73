"""Asks git about a repository. Nothing that the repository or its configuration names is run, and nothing fetched."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from manyheads.runner.run.program import Program

GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "fetch.bundleURI=")
# Otherwise git fetches objects that a repository declares missing, by a program that the repository names.
OFFLINE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}
MOST_SECONDS = 120.0  # a repository's settings may name a pipe, such as core.excludesFile, at which git waits for ever
LINK, EXECUTABLE = b"120000", b"100755"  # modes
REGULAR = (b"100644", EXECUTABLE)  # of files that are no links


class TreeEntry(NamedTuple):
    """A file or a link at a commit: its mode, and git's name of its content."""

    mode: bytes
    blob: bytes


def git(folder: Path, *arguments: str, given: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
    """The output of git; empty if ``asked`` returns None."""
    return asked(folder, *arguments, given=given, variables=variables) or b""


def asked(
    folder: Path, *arguments: str, given: bytes = b"", variables: Mapping[str, str] | None = None
) -> bytes | None:
    """The output of git; None if it fails, is killed, takes longer than MOST_SECONDS, or is not installed.

    ``given``: its input; ``variables``: further environment variables.
    """
    program = Program([*GIT, *arguments], {**os.environ, **OFFLINE, **(variables or {})}, folder)
    try:
        answer = program.ask(given=given, seconds=MOST_SECONDS)
        if answer.code < 0:  # killed, perhaps by the kernel because memory ran out
            answer = program.ask(given=given, seconds=MOST_SECONDS)
    except OSError:
        return None
    return answer.output if answer.code == 0 else None


def entries(folder: Path, commit: str, *names: str) -> dict[PurePosixPath, TreeEntry]:
    """What a commit has: the files and links with these ``names``, or all in the folder; no submodules.

    By path, relative to the folder.
    """
    listed = git(folder, "ls-tree", "-r", "-z", commit, "--", *names).split(b"\0")
    lines = [line.split(b"\t", 1) for line in listed if line.startswith((*REGULAR, LINK))]
    return {PurePosixPath(os.fsdecode(name)): TreeEntry(*about.split()[::2]) for about, name in lines}


def blobs(folder: Path, commit: str, *names: str) -> dict[PurePosixPath, bytes]:
    """As ``entries``, git's names of the contents, of files that are no links."""
    return {name: entry.blob for name, entry in entries(folder, commit, *names).items() if entry.mode in REGULAR}


def edited(folder: Path, blob_of: Mapping[PurePosixPath, bytes]) -> list[PurePosixPath]:
    """The files whose bytes are no longer those of their blobs, and those that are missing.

    ``git status`` would pass them through the repository's filters, which are programs.
    """
    present = [name for name in blob_of if os.path.isfile(folder / name) and "\n" not in str(folder / name)]
    paths = b"".join(os.fsencode(folder / name) + b"\n" for name in present)
    now = git(folder, "hash-object", "--no-filters", "--stdin-paths", given=paths).split()
    same = {name for name, blob in zip(present, now, strict=False) if blob_of[name] == blob}
    return [name for name in blob_of if name not in same]


def contents(folder: Path, blob_of: Mapping[PurePosixPath, bytes]) -> Iterator[tuple[PurePosixPath, bytes | None]]:
    """The files' contents, unfiltered; None for one that the repository lacks."""
    answer = git(folder, "cat-file", "--batch", given=b"".join(blob + b"\n" for blob in blob_of.values()))
    at = 0
    for name in blob_of:
        head, at = answer[at : answer.index(b"\n", at)], answer.index(b"\n", at) + 1
        if head.endswith(b" missing"):
            yield name, None
            continue
        size = int(head.split()[2])
        yield name, answer[at : at + size]
        at += size + 1
