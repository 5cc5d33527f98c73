"""Which torch is installed, found without importing it."""

import re
from importlib import metadata


def too_old(lowest: str) -> str | None:
    """Why the installed torch does not do for what works from version ``lowest`` on, and how to get one that does."""
    installed = metadata.version("torch")
    if _numbers(installed) >= _numbers(lowest):
        return None
    remedy = f"Install one with: pip install 'torch>={lowest}'"
    return f"it needs torch {lowest} or newer, and {installed} is installed. {remedy}"


def _numbers(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
