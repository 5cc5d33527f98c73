"""With which tools and settings Horovod is compiled; nothing is."""

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from manyheads.runner.commands.install_horovod import compile_horovod as horovod_build
from manyheads.runner.commands.install_horovod.compile_horovod import (
    VERSION,
    Features,
    check_tools,
    cuda_toolkit,
    environment,
    missing_for_mpi,
)
from manyheads.runner.errors import ConfigurationError

TOOLS = ("g++", "make", "mpicxx", "mpirun")
PLAIN, MPI, NCCL = Features(mpi=False, nccl=False), Features(mpi=True, nccl=False), Features(mpi=False, nccl=True)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """PATH with these programs alone, and no CUDA toolkit unless one is made."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: not path.is_relative_to("/usr/local/cuda") and exists(path))
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(*programs: str) -> None:
        for name in programs:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)

    make(*TOOLS)
    return folder


@pytest.fixture
def toolkit(tmp_path):
    """A folder as the CUDA toolkit's."""
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    (tmp_path / "cuda" / "bin" / "nvcc").touch()
    return tmp_path / "cuda"


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """The only package beside torch: NVIDIA's NCCL, or none."""

    def pretend(*, nccl: bool) -> Path:
        folder = tmp_path / "site" / "nvidia" / "nccl"
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "libnccl.so.2").touch()
        info = tmp_path / "site" / f"nvidia_nccl_cu13-2.0.dist-info{'' if nccl else '.not'}"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: 2.0\n")
        (info / "RECORD").write_text("nvidia/nccl/include/nccl.h,,\nnvidia/nccl/lib/libnccl.so.2,,\n")
        found = list(metadata.distributions(path=[str(tmp_path / "site")]))
        monkeypatch.setattr(horovod_build.metadata, "distributions", lambda: found)
        return folder

    return pretend


@pytest.mark.parametrize(
    ("features", "end"),
    [
        (PLAIN, "-gloo"),
        (MPI, "-gloo-mpi"),
        (NCCL, "-gloo-nccl"),
        (Features(mpi=True, nccl=True), "-gloo-mpi-nccl"),
    ],
)
def test_a_wheel_is_kept_for_what_it_was_built_with(features, end):
    python = f"{sys.implementation.cache_tag}-{platform.machine()}"
    assert features.key == f"horovod-{VERSION}-torch-{metadata.version('torch')}-{python}{end}"


@pytest.mark.parametrize("version", ["9.9.0", "9.9.0+cpu"])
def test_another_torch_needs_another_wheel(monkeypatch, version):
    monkeypatch.setattr(horovod_build.metadata, "version", {"torch": version}.get)
    assert PLAIN.key.startswith(f"horovod-{VERSION}-torch-{version}-{sys.implementation.cache_tag}")


def variables(features: Features, tmp_path: Path) -> dict[str, str]:
    tools = tmp_path / "scratch" / "tools"
    tools.mkdir(parents=True)
    return environment(features, tools, tmp_path / "cxx20.cmake")


@pytest.mark.parametrize("features", [PLAIN, MPI])
def test_settings_without_cuda(path, tmp_path, features):
    found = variables(features, tmp_path)
    tools = tmp_path / "scratch" / "tools"
    assert found["PATH"] == f"{tools}/bin{os.pathsep}{path}"
    assert found["PYTHONPATH"] == str(tools)
    assert found["CMAKE_TOOLCHAIN_FILE"] == str(tmp_path / "cxx20.cmake")
    assert found["MAKEFLAGS"] == f"-j{len(os.sched_getaffinity(0))}"
    assert {name for name, value in found.items() if name.startswith("HOROVOD_") and value == "1"} == {
        "HOROVOD_WITH_PYTORCH",
        "HOROVOD_WITHOUT_TENSORFLOW",
        "HOROVOD_WITHOUT_MXNET",
        "HOROVOD_WITH_GLOO",
        "HOROVOD_WITH_MPI" if features.mpi else "HOROVOD_WITHOUT_MPI",
    }
    assert not [name for name in found if "CUDA" in name or "NCCL" in name or "GPU" in name]


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH"])
def test_the_toolkits_own_compiler_comes_first(path, toolkit, tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, str(toolkit))
    found = variables(PLAIN, tmp_path)
    assert found["PATH"].split(os.pathsep)[0] == str(toolkit / "bin")
    assert found["HOROVOD_CUDA_HOME"] == str(toolkit)
    assert "HOROVOD_GPU_OPERATIONS" not in found


def test_nccl_comes_from_the_wheel_beside_torch(path, toolkit, packages, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    nccl = packages(nccl=True)
    found = variables(NCCL, tmp_path)
    assert found["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert found["HOROVOD_NCCL_INCLUDE"] == str(nccl / "include")
    linked = Path(found["HOROVOD_NCCL_LIB"]) / "libnccl.so"
    assert linked.resolve() == (nccl / "lib" / "libnccl.so.2").resolve()
    assert linked.is_relative_to(tmp_path / "scratch")


@pytest.mark.parametrize(("home", "found"), [("cuda", True), ("elsewhere", False), ("", False)])
def test_a_toolkit_is_where_its_compiler_is(path, toolkit, monkeypatch, home, found):
    monkeypatch.setenv("CUDA_HOME", str(toolkit.parent / home) if home else "")
    assert cuda_toolkit() == (toolkit if found else None)


@pytest.mark.parametrize(
    ("features", "missing", "message"),
    [
        (PLAIN, "g++", "building Horovod needs g++, which is not on PATH. Install it (Debian: g++)."),
        (PLAIN, "make", "building Horovod needs make, which is not on PATH. Install it (Debian: make)."),
        (MPI, "mpicxx", "--mpi: mpicxx is not on PATH (Debian: libopenmpi-dev). Install that, or leave out --mpi."),
        (MPI, "mpirun", "--mpi: mpirun is not on PATH (Debian: openmpi-bin). Install that, or leave out --mpi."),
    ],
)
def test_a_missing_tool_is_named_with_its_package(path, features, missing, message):
    check_tools(features)
    (path / missing).unlink()
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
        check_tools(features)


@pytest.mark.parametrize(
    ("says", "quoted"),
    [
        ("program.cc:1:10: fatal error: mpi.h: No such file or directory", "mpi.h: No such file or directory"),
        ("/usr/bin/ld: cannot find -lmpi", "/usr/bin/ld: cannot find -lmpi"),
        ("", "exit code 1"),
    ],
)
def test_a_compiler_without_mpi_s_headers_is_found_before_the_build(path, tmp_path, says, quoted):
    """As Debian's openmpi-bin has it without libopenmpi-dev."""
    (path / "mpicxx").write_text(
        f"#!/bin/sh\nread line < $1\necho \"$line\" > {tmp_path}/read\necho '{says}' >&2\nexit 1"
    )
    message = f"--mpi: mpicxx cannot compile a program that uses MPI: {quoted} (Debian: libopenmpi-dev). Install that"
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        check_tools(MPI)
    assert (tmp_path / "read").read_text() == "#include <mpi.h>\n"


@pytest.mark.tail
@pytest.mark.needs("mpi")
def test_a_compiler_that_has_built_horovod_is_good():
    assert missing_for_mpi() is None


def test_mpi_is_needed_for_mpi_only(path):
    (path / "mpicxx").unlink()
    (path / "mpirun").unlink()
    check_tools(PLAIN)


@pytest.mark.parametrize(
    ("nccl", "cuda", "message"),
    [
        (False, True, r"^--nccl: there is no nvidia-nccl package beside torch\. Install a CUDA build of torch\.$"),
        (True, False, r"^--nccl needs CUDA's compiler\. Install the CUDA toolkit, and set CUDA_HOME to it\.$"),
        (True, True, None),
    ],
)
def test_what_nccl_needs(path, toolkit, packages, monkeypatch, nccl, cuda, message):
    packages(nccl=nccl)
    if cuda:
        monkeypatch.setenv("CUDA_HOME", str(toolkit))
    if message is None:
        check_tools(NCCL)
        return
    with pytest.raises(ConfigurationError, match=message):
        check_tools(NCCL)
