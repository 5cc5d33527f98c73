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

    False if it does not exist. See ``open_to_others``.
    """
    try:
        return path.exists() and open_to_others(path) is None
    except (OSError, RuntimeError):  # links in a circle, in some versions of Python
        return False


def open_to_others(path: Path) -> Path | None:
    """The first file or folder by which others can change what ``path`` refers to, or what is in that folder, if any.

    Everything from the root down to it must belong to this user or the superuser, with links and with what they lead
    to, and nobody else may write to it. Others may write to folders on the way that have the sticky bit, as /tmp has,
    but not to the folder itself. What does not exist yet is open to nobody.
    """
    for last in (Path(os.path.abspath(path)), Path(os.path.realpath(path))):
        for folder in (*reversed(last.parents), last):
            try:
                if not _is_private(folder, is_last=folder == last):
                    return folder
            except FileNotFoundError:
                break
            except OSError:
                return folder
    return None


def is_closed(folder: Path) -> bool:
    """Whether a folder's own owner and mode let nobody else write, not even a group; true if it does not exist.

    For folders that this project creates for the user alone, wherever they are: nobody else could create such a one.
    """
    try:
        status = folder.stat()
    except OSError:
        return True
    return not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and status.st_uid in (SUPERUSER, os.geteuid())


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
