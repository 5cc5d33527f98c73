"""Whether anyone but this user decides what a path refers to, by the owners and modes of everything above it."""

import grp
import os
import pwd
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

SUPERUSER = 0
_ACCESS_LIST = "system.posix_acl_access"


def is_mine(path: Path) -> bool:
    """Whether only this user and the superuser can change what ``path`` refers to, or what is in that folder.

    Everything from the root down to it must belong to one of them, with links and with what they lead to, and nobody
    else may write to it. Others may write to folders on the way that have the sticky bit, as /tmp has, but not to the
    folder itself. False if it does not exist.
    """
    lexical = Path(os.path.abspath(path))
    try:
        return all(
            _is_private(each, is_last=each == last)
            for last in (lexical, path.resolve(strict=True))
            for each in (last, *last.parents)
        )
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return False


def _is_private(path: Path, *, is_last: bool) -> bool:
    status = os.lstat(path)
    if status.st_uid not in (SUPERUSER, os.geteuid()):
        return False
    if stat.S_ISLNK(status.st_mode):  # its own mode means nothing; the folder's decides
        return True
    is_sticky = not is_last and stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
    return is_sticky or not _others_write(path, status)


def _others_write(path: Path, status: os.stat_result) -> bool:
    """Whether the mode lets others write: all, or a group with other members. An access list counts as others."""
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    return _has_access_list(path) or not _is_private_group(status.st_gid)


def _has_access_list(path: Path) -> bool:
    with suppress(OSError, AttributeError):  # AttributeError: a system without extended attributes
        return bool(os.getxattr(path, _ACCESS_LIST))
    return False


@cache
def _is_private_group(group: int) -> bool:
    """Whether a group is the superuser's or the user's alone, named like the user, as Debian and Fedora create them."""
    if group == SUPERUSER:
        return True
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and not {*entry.gr_mem} - {user.pw_name}
