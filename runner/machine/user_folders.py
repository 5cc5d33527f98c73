"""Folders of the user's settings, secrets and caches, by the XDG Base Directory Specification, on every system.

Source: https://specifications.freedesktop.org/basedir-spec/latest/.
"""

from pathlib import Path
from typing import Literal


def user_folder(kind: Literal["cache", "config", "state"]) -> Path | None:
    """The folder that XDG_CACHE_HOME, ... names, or its default; None for a user without a home.

    Relative values are ignored, as the specification requires: they would mean different folders in different places,
    for example one that came with a run.
    """
    from platformdirs.unix import Unix  # takes a while, and a config is printed without it

    try:
        return Path(getattr(Unix(), f"user_{kind}_dir"))
    except RuntimeError:
        return None
