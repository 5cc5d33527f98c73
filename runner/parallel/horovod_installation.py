"""The installed Horovod and the features that it was built with, found without importing it or torch."""

import importlib.util
import json
import mmap
import os
import shutil
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run.program import Program

BUILD = invocation.command("install-horovod")
NAMES = {"gloo": "Gloo", "mpi": "MPI", "nccl": "NCCL"}
# Variables for the folders of Open MPI's shared memory, by default /dev/shm, where others can guess the names.
OPEN_MPI_MEMORY = tuple(f"OMPI_MCA_{part}_backing_directory" for part in ("btl_vader", "btl_sm", "osc_sm", "osc_rdma"))
# Names that stand in the library's tables when a feature was compiled in.
MARKS = {
    "gloo": b"GlooController",
    "mpi": b"MPIController",
    "nccl": b"NCCLAllreduce",
    "cuda": b"cudaStreamSynchronize",
}


@cache
def version() -> str | None:
    """The installed version of Horovod, or None."""
    try:
        return metadata.version("horovod")
    except metadata.PackageNotFoundError:
        return None


def unavailable() -> str | None:
    """Why parallel=horovod can't run here, and how to get it; None when it can."""
    if _folder() is None:
        return (
            f"Horovod is not installed. Build it with `{BUILD}`, adding --mpi for mpirun. Or use parallel=ddp with "
            "launcher=spawn or torchrun"
        )
    if not controllers():
        return f"Horovod is installed without its library for PyTorch. Build it with `{BUILD} --rebuild`"
    built, installed = built_for(), metadata.version("torch")
    if built.split("+")[0] != installed.split("+")[0]:
        return f"Horovod was built for torch {built}, not for {installed}. Build it again with `{build_with()}`"
    return None


def build_with(*features: str) -> str:
    """The command that builds Horovod with "mpi" or "nccl", and with those that the installed one has."""
    return " ".join([BUILD, *(f"--{name}" for name in ("mpi", "nccl") if name in features or has(name))])


def built_for() -> str:
    """The version of torch that the installed Horovod was compiled against, or "unknown"."""
    folder = _folder()
    try:
        return json.loads((folder / "metadata.json").read_text())["pytorch"] if folder else "unknown"
    except (OSError, ValueError, KeyError):
        return "unknown"


@cache
def has(feature: str) -> bool:
    """Whether "gloo", "mpi", "nccl" or "cuda", without which it does not support tensors on GPUs, was compiled in."""
    library = _library()
    if library is None:
        return False
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(MARKS[feature]) >= 0


def controllers() -> list[str]:
    """The controllers that were compiled in, of gloo and mpi."""
    return [name for name in ("gloo", "mpi") if has(name)]


def built_with() -> str:
    """The features that were compiled in, in words."""
    *most, last = (text for name, text in NAMES.items() if has(name))
    return f"{', '.join(most)} and {last}" if most else last


def refuse_controller(what: str, controller: str) -> NoReturn:
    """Raise ConfigurationError: ``what`` needs a controller that the installed Horovod lacks."""
    raise ConfigurationError(
        f"{what}: the installed Horovod was built without {controller.upper()}. Build it again with "
        f"`{build_with(controller)}`, or use launcher.controller="
        f"{' or '.join(controllers())} with launcher=horovodrun.",
        key="launcher.controller",
        value=controller,
        allowed=controllers(),
    )


@cache
def open_mpi() -> str | None:
    """The version of Open MPI's mpirun on PATH, or None."""
    if (program := shutil.which("mpirun")) is None:
        return None
    # Without HOME it loads libraries from the folder (null)/.openmpi of the directory in which it is called.
    first = (Program([os.path.abspath(program), "--version"], folder="/").ask().text.splitlines() or [""])[0]
    return first.split()[-1] if "Open MPI" in first or "OpenRTE" in first else None


def without_mpirun() -> str | None:
    """Why nothing can be started by mpirun here, and how to get it; None when it can."""
    if open_mpi() is None:
        return "Open MPI's mpirun is not on PATH. Install it (Debian: openmpi-bin), or use launcher=torchrun"
    return None


@cache
def _folder() -> Path | None:
    spec = importlib.util.find_spec("horovod")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


@cache
def _library() -> Path | None:
    folder = _folder()
    return next(folder.glob("torch/mpi_lib_v2*.so"), None) if folder else None
