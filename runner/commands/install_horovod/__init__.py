"""``python -m runner install-horovod``: build Horovod against the installed torch, and install it."""

import argparse
import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands.install_horovod.compile_horovod import (
    TOOLCHAIN,
    VERSION,
    Features,
    check_tools,
    environment,
    missing_for_mpi,
)
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.machine.console import Console
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.parallel import horovod_installation
from manyheads.runner.run import scratch
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.files import in_turn, write_whole
from manyheads.runner.run.program import Program
from manyheads.runner.run.progress import Work, working

HELP = "build Horovod against the installed torch, and install it"
BUILD_REQUIREMENTS = ("setuptools<81", "wheel", "cffi", "cloudpickle", "psutil", "pyyaml", "packaging")
# horovodrun imports distutils, which Python 3.12 removed; setuptools supplies it.
DISTUTILS = ["setuptools<81"] if sys.version_info >= (3, 12) else []
REQUIREMENTS = ("cloudpickle", "psutil", "pyyaml", "packaging", *DISTUTILS)
_PERCENT = re.compile(r"^\s*\[\s*(\d+)%\]")
_COMPLAINT = re.compile(r"\berror:|Error\b|ERROR:")  # errors of a compiler; of make, CMake and Python; of pip


@dataclass(frozen=True)
class HorovodInstalled(Answer):
    """The installed Horovod."""

    version: str
    was_built: Annotated[bool, "false if an earlier build or an existing installation was used"]
    tried: Annotated[str, "the features that it was tested to support; empty if it was already installed"]

    def show(self) -> None:
        if self.tried:
            print(f"Horovod {self.version} works: {self.tried}")
        else:
            print(f"Horovod {self.version} is already installed. --rebuild builds it again.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    mpi = parser.add_mutually_exclusive_group()
    mpi.add_argument("--mpi", action="store_const", const=True, default=False, help="include MPI, in addition to Gloo")
    mpi.add_argument(
        "--mpi-if-possible", dest="mpi", action="store_const", const=None, help="include MPI if it can be compiled here"
    )
    parser.add_argument("--nccl", action="store_true", help="include NCCL, for GPUs; needs nvcc")
    parser.add_argument("--rebuild", action="store_true", help="build even if an earlier build is cached")


def run(arguments: argparse.Namespace) -> HorovodInstalled:
    """Install the wheel that matches, after building it if there is none. Raises ConfigurationError, RunFailed."""
    return install(mpi=arguments.mpi, nccl=arguments.nccl, rebuild=arguments.rebuild)


def install(*, mpi: bool | None, nccl: bool, rebuild: bool) -> HorovodInstalled:
    """Install the wheel that matches, after building it if there is none.

    ``mpi``: None to include MPI if it can be compiled here. Raises ConfigurationError if a tool is missing, RunFailed
    if building or installing fails.
    """
    console = Console()
    if mpi is None:
        missing = None if is_installed(Features(mpi=True, nccl=nccl)) else missing_for_mpi()
        if missing:
            console.print(f"without MPI, with Gloo only: {missing}. Install that for launcher=mpirun.", soft_wrap=True)
        mpi = missing is None
    features = Features(mpi, nccl)
    if not rebuild and is_installed(features):
        return HorovodInstalled(str(horovod_installation.version()), was_built=False, tried="")
    check_tools(features)
    if (folder := cache_folder(features.key)) is None:
        raise ConfigurationError("there is no folder to keep Horovod's wheel in. Set HOME or XDG_CACHE_HOME.")
    kept = "run it again; a wheel that is complete is kept"
    with in_turn(folder / "lock"), working("building Horovod", 100, kept=kept) as work:
        wheel = next(folder.glob("*.whl"), None)
        if builds := wheel is None or rebuild:
            console.print(f"building Horovod {VERSION} against torch {metadata.version('torch')} takes 2 to 10 minutes")
            wheel = build(features, folder, work)
        work.reach(100, "installing Horovod")
        _run([*_pip("install"), "--force-reinstall", "--no-deps", str(wheel)], folder / "install.log")
        _run([*_pip("install"), *REQUIREMENTS], folder / "install.log")
        return HorovodInstalled(VERSION, builds, _try_it(folder))


def is_installed(features: Features) -> bool:
    """Whether a Horovod with these features is installed that was built for the installed torch."""
    wanted = [name for name, asked in (("gloo", True), ("mpi", features.mpi), ("nccl", features.nccl)) if asked]
    return horovod_installation.unavailable() is None and all(map(horovod_installation.has, wanted))


def build(features: Features, folder: Path, work: Work) -> Path:
    """Compile a wheel into ``folder``, where it appears once it is complete, and return its path.

    ``work``: shows the progress, in percent. Raises RunFailed.
    """
    with scratch.folder() as scratch_folder:
        tools, toolchain, wheels = (scratch_folder / name for name in ("tools", "cxx20.cmake", "wheels"))
        needed = [*BUILD_REQUIREMENTS, *([] if shutil.which("cmake") else ["cmake"])]
        # In a separate folder, so that the user's environment keeps its setuptools.
        _run([*_pip("install"), "--target", str(tools), *needed], folder / "build.log")
        toolchain.write_text(TOOLCHAIN)
        command = [*_pip("wheel"), "--verbose", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        command += ["--no-binary", "horovod", "--wheel-dir", str(wheels), f"horovod=={VERSION}"]
        variables = {**os.environ, **environment(features, tools, toolchain)}
        variables.pop("PYTHONSAFEPATH", None)  # Horovod's setup.py imports modules beside it
        _compile(command, variables, folder / "build.log", work)
        built = next(wheels.glob("*.whl"))
        write_whole(folder.resolve() / built.name, built.read_bytes())
    return folder / built.name


def _pip(command: str) -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", command]


def _run(command: list[str], log: Path) -> None:
    with open(log, "w") as file:
        if Program(command).run(stdout=file, stderr=file):
            raise failed(log)


def _compile(command: list[str], environment: dict[str, str], log: Path, work: Work) -> None:
    with open(log, "w") as file:

        def note(line: str) -> None:
            file.write(line)
            if (progress := _PERCENT.match(line)) and (percent := int(progress[1])) != work.done:
                work.reach(percent)

        # Not in the user's folder, whose modules Python would import.
        code = Program(command, environment, log.parent).run(on_line=note)
    if code:
        raise failed(log)


def _try_it(folder: Path) -> str:
    """Ask the installed library what it supports, in a separate process, since it loads torch."""
    script = (
        "import horovod.torch as hvd; hvd.init(); "
        "print(', '.join(n for n in ('gloo', 'mpi', 'nccl') if getattr(hvd, n + '_built')())); hvd.shutdown()"
    )
    log = folder / "try.log"
    _run([sys.executable, "-c", script], log)
    return log.read_text().splitlines()[-1]


def failed(log: Path) -> RunFailed:
    """The error of a build. It shows the first errors in the log: later ones are their consequences."""
    lines = [line.rstrip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    complaints = [line for line in lines if _COMPLAINT.search(line)][:8] or lines[-8:]
    message = f"Horovod could not be built or installed; the complete output is in {log}"
    return RunFailed(Failure(Kind.PROGRAM_FAILED, message=message, traceback="\n".join(complaints)))
