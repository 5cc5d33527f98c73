"""What torch.compile needs of a machine besides torch: a C compiler and Python's headers, to build small modules with.

Sources: triton/runtime/build.py in https://github.com/triton-lang/triton, torch/_inductor/cpp_builder.py.
"""

import os
import shutil
import sysconfig
from pathlib import Path

COMPILERS = {"GPUs": ("gcc", "clang"), "CPUs": ("g++", "clang++")}
VARIABLES = {"GPUs": "CC", "CPUs": "CXX"}


def description() -> str:
    """With what models are compiled here, for GPUs and for CPUs, or what is missing."""
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "not here: Python.h is missing (Debian: python3-dev)"
    return ", ".join(f"for {kind} {_found(kind)}" for kind in COMPILERS)


def _found(kind: str) -> str:
    own = os.environ.get(VARIABLES[kind])
    names = (own,) if own else COMPILERS[kind]
    found = next((name for name in names if shutil.which(name)), None)
    return f"by {found}" if found else f"not here: {' or '.join(names)} is not on PATH (Debian: {COMPILERS[kind][0]})"
