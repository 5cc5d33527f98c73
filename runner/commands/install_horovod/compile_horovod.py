"""How Horovod is compiled against today's PyTorch: which features, which tools, which settings.

Horovod's last release asks for C++14 or 17, and the headers of today's PyTorch for more; a CMake toolchain file
puts the newer standard last on each compile line, where it wins, so that no source need be changed.
Sources: https://github.com/horovod/horovod/issues/3996, https://horovod.readthedocs.io/en/stable/install.html.
"""

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.hardware import cpu_cores
from manyheads.runner.run.program import Program

VERSION = "0.28.1"
TOOLCHAIN = (
    'set(CMAKE_CXX_COMPILE_OBJECT "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> '
    '-std=gnu++20 -o <OBJECT> -c <SOURCE>")\n'
)
# openmpi-bin alone has the compiler, but neither mpi.h nor the library to link with.
MPI_PROGRAM = "#include <mpi.h>\nint main() { return MPI_Init(nullptr, nullptr); }\n"


@dataclass(frozen=True)
class Features:
    """Features to compile in besides Gloo."""

    mpi: bool
    nccl: bool

    @property
    def key(self) -> str:
        """Names the wheel's folder: another torch, Python or choice of features needs another wheel."""
        features = "gloo" + "-mpi" * self.mpi + "-nccl" * self.nccl
        python = f"{sys.implementation.cache_tag}-{platform.machine()}"
        return f"horovod-{VERSION}-torch-{metadata.version('torch')}-{python}-{features}"


def check_tools(features: Features) -> None:
    """Raises ConfigurationError for a compiler that is missing, or lacks what it needs."""
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
    """Why nothing can be compiled with MPI here, and the package that is missing; None when it can."""
    for tool, package in (("mpicxx", "libopenmpi-dev"), ("mpirun", "openmpi-bin")):
        if shutil.which(tool) is None:
            return f"{tool} is not on PATH (Debian: {package})"
    with tempfile.TemporaryDirectory(prefix="manyheads-mpi-") as scratch:
        program = Path(scratch) / "program.cc"
        program.write_text(MPI_PROGRAM)
        command = ["mpicxx", str(program), "-o", str(program.with_suffix(""))]
        answer = Program(command, folder="/").ask()  # as horovod_installation.open_mpi
    if answer.code == 0:
        return None
    lines = (answer.errors or answer.text).strip().splitlines() or [f"exit code {answer.code}"]
    said = next((line.rpartition("error: ")[2] for line in lines if "error: " in line), lines[0])
    return f"mpicxx cannot compile a program that uses MPI: {said} (Debian: libopenmpi-dev)"


def environment(features: Features, tools: Path, toolchain: Path) -> dict[str, str]:
    """Variables for Horovod's build, which has no other options."""
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
    """The folder of CUDA's compiler, found as torch finds it; None if there is none."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return next((Path(place) for place in places if place and (Path(place) / "bin" / "nvcc").exists()), None)


def _nccl(links: Path) -> dict[str, str]:
    """NCCL from the wheel that came with torch, which has no unversioned name for the linker."""
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
    found = [d for d in metadata.distributions() if (d.metadata["Name"] or "").startswith("nvidia-nccl")]
    if not found:
        raise ConfigurationError(
            "--nccl: there is no nvidia-nccl package beside torch. Install a CUDA build of torch.", key="--nccl"
        )
    return found[0]
