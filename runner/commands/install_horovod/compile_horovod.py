"""How Horovod is compiled against a current PyTorch: features, tools and settings.

Horovod's last release compiles as C++14 or 17, but the headers of current PyTorch versions need a newer standard. A
CMake toolchain file puts that last on each compiler's command line, where it takes precedence, so that no source is
changed.
Sources: https://github.com/horovod/horovod/issues/3996, https://horovod.readthedocs.io/en/stable/install.html.
"""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.hardware import cpu_cores
from manyheads.runner.run import scratch
from manyheads.runner.run.program import Program

VERSION = "0.28.1"
TOOLCHAIN = (
    'set(CMAKE_CXX_COMPILE_OBJECT "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> '
    '-std=gnu++20 -o <OBJECT> -c <SOURCE>")\n'
)
# openmpi-bin alone has the compiler wrapper, but neither mpi.h nor the library to link with.
MPI_PROGRAM = "#include <mpi.h>\nint main() { return MPI_Init(nullptr, nullptr); }\n"


@dataclass(frozen=True)
class Features:
    """Features to compile, in addition to Gloo."""

    mpi: bool
    nccl: bool

    @property
    def key(self) -> str:
        """The name of the wheel's folder: it differs by version of torch and Python, and by features."""
        features = "gloo" + "-mpi" * self.mpi + "-nccl" * self.nccl
        python = f"{sys.implementation.cache_tag}-{platform.machine()}"
        return f"horovod-{VERSION}-torch-{metadata.version('torch')}-{python}-{features}"


def check_tools(features: Features) -> None:
    """Raise ConfigurationError if a compiler, or a library that it needs, is missing."""
    for tool in ("g++", "make"):
        if shutil.which(tool) is None:
            raise ConfigurationError(
                f"building Horovod needs {tool}, which is not on PATH. Install it (Debian: {tool})."
            )
    if features.mpi and (missing := missing_for_mpi()):
        raise ConfigurationError(f"--mpi: {missing}. Install that, or leave out --mpi.", key="--mpi")
    if features.nccl:
        _nccl_wheel()
        if cuda_toolkit() is None:
            raise ConfigurationError(
                "--nccl needs CUDA's compiler. Install the CUDA toolkit, and set CUDA_HOME to it.", key="--nccl"
            )


def missing_for_mpi() -> str | None:
    """Why programs with MPI cannot be compiled here, with the missing package; None if they can."""
    for tool, package in (("mpicxx", "libopenmpi-dev"), ("mpirun", "openmpi-bin")):
        if shutil.which(tool) is None:
            return f"{tool} is not on PATH (Debian: {package})"
    with scratch.folder() as folder:
        program = folder / "program.cc"
        program.write_text(MPI_PROGRAM)
        command = ["mpicxx", str(program), "-o", str(program.with_suffix(""))]
        answer = Program(command, folder="/").ask()  # run as horovod_installation.open_mpi runs its command
    if answer.code == 0:
        return None
    lines = (answer.errors or answer.text).strip().splitlines() or [f"exit code {answer.code}"]
    reason = next((line.rpartition("error: ")[2] for line in lines if "error: " in line), lines[0])
    return f"mpicxx cannot compile a program that uses MPI: {reason} (Debian: libopenmpi-dev)"


def environment(features: Features, tools: Path, toolchain: Path) -> dict[str, str]:
    """The environment variables for Horovod's build, its only options.

    ``tools``: the folder of build requirements; ``toolchain``: the CMake toolchain file.
    """
    path = [str(tools / "bin"), os.environ.get("PATH", "")]
    variables = {
        "PYTHONPATH": str(tools),
        "CMAKE_TOOLCHAIN_FILE": str(toolchain),
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 refuses older projects otherwise
        "MAKEFLAGS": f"-j{cpu_cores()}",
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI" if features.mpi else "HOROVOD_WITHOUT_MPI": "1",
    }
    if toolkit := cuda_toolkit():
        # An nvcc on PATH may be a wrapper script, from which CMake would take a wrong root.
        path.insert(0, str(toolkit / "bin"))
        variables["HOROVOD_CUDA_HOME"] = str(toolkit)
    if features.nccl:
        variables |= _nccl(tools.parent / "nccl")
    return {**variables, "PATH": os.pathsep.join(path)}


def cuda_toolkit() -> Path | None:
    """The folder of the CUDA toolkit, searched for as torch does; None if there is none."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return next((Path(path) for path in places if path and (Path(path) / "bin" / "nvcc").exists()), None)


def _nccl(links: Path) -> dict[str, str]:
    """Variables for NCCL from torch's nvidia-nccl wheel, whose library gets a link without version for the linker."""
    files = [Path(file.locate()) for file in _nccl_wheel().files or [] if file.name.startswith("libnccl.so")]
    links.mkdir()
    (links / "libnccl.so").symlink_to(files[0])
    return {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_NCCL_LINK": "SHARED",
        "HOROVOD_NCCL_INCLUDE": str(files[0].parent.parent / "include"),
        "HOROVOD_NCCL_LIB": str(links),
    }


def _nccl_wheel() -> metadata.Distribution:
    packages = [d for d in metadata.distributions() if (d.metadata["Name"] or "").startswith("nvidia-nccl")]
    if not packages:
        raise ConfigurationError(
            "--nccl: there is no nvidia-nccl package beside torch. Install a CUDA build of torch.", key="--nccl"
        )
    return packages[0]
