"""The installed torch and compilers, found without importing torch."""

import os
import re
import shutil
import sysconfig
from importlib import metadata
from pathlib import Path


def too_old(lowest: str) -> str | None:
    """Why the installed torch is older than version ``lowest``, and how to get a newer one; None if it is not."""
    installed = metadata.version("torch")
    if _numbers(installed) >= _numbers(lowest):
        return None
    remedy = f"Install one with: pip install 'torch>={lowest}'"
    return f"it needs torch {lowest} or newer, and {installed} is installed. {remedy}"


def _numbers(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


COMPILERS = {"GPUs": ("gcc", "clang"), "CPUs": ("g++", "clang++")}
VARIABLES = {"GPUs": "CC", "CPUs": "CXX"}


def description() -> str:
    """The compilers that torch.compile uses here, for GPUs and for CPUs, or what is missing."""
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "unavailable: Python.h is missing (Debian: python3-dev)"
    return ", ".join(f"for {kind} {_found(kind)}" for kind in COMPILERS)


def _found(kind: str) -> str:
    compiler = os.environ.get(VARIABLES[kind])
    names = (compiler,) if compiler else COMPILERS[kind]
    program = next((name for name in names if shutil.which(name)), None)
    return (
        f"by {program}"
        if program
        else f"unavailable: {' or '.join(names)} is not on PATH (Debian: {COMPILERS[kind][0]})"
    )
