"""Building, keeping and installing Horovod's wheel, with a pip that only pretends."""

import json
import os
import sys
from itertools import groupby
from pathlib import Path

import pytest

from manyheads.runner.commands import install_horovod as install_horovod
from manyheads.runner.commands.install_horovod import failed, install, is_installed
from manyheads.runner.commands.install_horovod.compile_horovod import TOOLCHAIN, VERSION, Features
from manyheads.runner.errors import ConfigurationError, Kind, RunFailed
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.parallel import horovod_installation

PLAIN = Features(mpi=False, nccl=False)
WHEEL = f"horovod-{VERSION}-cp311-cp311-linux_x86_64.whl"
PERCENTS = [*range(0, 101, 3), 100]
# What a failed compilation says: the complaint, and then its consequences.
COMPLAINT = "  /usr/include/ATen/core.h:12:2: error: #error You need C++20 to compile PyTorch"
CONSEQUENCES = """
  make[2]: *** [horovod/torch/CMakeFiles/pytorch.dir/build.make:104: mpi_ops.cc.o] Error 1
  make[1]: *** [CMakeFiles/Makefile2:210: horovod/torch/CMakeFiles/pytorch.dir/all] Error 2
  make: *** [Makefile:136: all] Error 2
  Traceback (most recent call last):
    File "setup.py", line 89, in build_extensions
  subprocess.CalledProcessError: Command '['cmake', '--build', '.']' returned non-zero exit status 2.
  error: subprocess-exited-with-error
  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for horovod
ERROR: Failed to build one or more wheels
"""
# A pip that notes how it was called, and does what a compilation looks like.
PIP = """
import json, os, pathlib, sys
arguments = sys.argv[1:]
here = pathlib.Path(__file__).parent
names = ("CMAKE_TOOLCHAIN_FILE", "HOROVOD_WITH_MPI", "HOROVOD_WITHOUT_MPI", "PYTHONSAFEPATH")
call = {"arguments": arguments, "cwd": os.getcwd(), **{name: os.environ.get(name) for name in names}}
if call["CMAKE_TOOLCHAIN_FILE"]:
    call["toolchain"] = pathlib.Path(call["CMAKE_TOOLCHAIN_FILE"]).read_text()
with open(here / "calls", "a") as file:
    print(json.dumps(call), file=file)
if arguments[0] == "wheel":
    for percent in json.loads((here / "percents").read_text()):
        print(f"  [{percent:3d}%] Building CXX object")
    if (here / "complaint").exists():
        sys.exit((here / "complaint").read_text())
    folder = pathlib.Path(arguments[arguments.index("--wheel-dir") + 1])
    folder.mkdir()
    (folder / "WHEEL").write_text(f"built by {os.getpid()}")
elif (here / "no network").exists():
    sys.exit("ERROR: Could not find a version that satisfies the requirement wheel")
"""


class Pip:
    """The pretended pip's folder: what it is told to do, and how it was called."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "pip.py").write_text(PIP.replace("WHEEL", WHEEL))
        (folder / "percents").write_text(json.dumps(PERCENTS))

    def calls(self, command: str) -> list[dict]:
        path = self.folder / "calls"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call for call in calls if call["arguments"][0] == command]

    def built(self) -> int:
        return len(self.calls("wheel"))


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Nothing is installed; the cache is the test's own."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "scratch").mkdir()
    pip = Pip(tmp_path / "pip")
    monkeypatch.setattr(install_horovod, "_pip", lambda command: [sys.executable, str(pip.folder / "pip.py"), command])
    monkeypatch.setattr(install_horovod, "_try_it", lambda folder: "gloo")
    monkeypatch.setattr(install_horovod, "check_tools", lambda features: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: "Horovod is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return pip


def build(*, mpi: bool | None = False, rebuild: bool = False) -> None:
    install(mpi=mpi, nccl=False, rebuild=rebuild).show()


def kept(features: Features = PLAIN) -> list[Path]:
    return sorted(cache_folder(features.key).glob("*.whl"))


def test_the_wheel_is_built_kept_and_installed(pip, tmp_path, capsys):
    build()
    (wheel,) = kept()
    assert wheel.name == WHEEL
    assert wheel.is_relative_to(tmp_path / "cache" / "manyheads")
    assert not [path for path in wheel.parent.rglob("*") if "aside" in path.name]
    assert list((tmp_path / "scratch").iterdir()) == []
    tools, first, second = pip.calls("install")
    assert "--target" in tools["arguments"]
    assert "setuptools<81" in tools["arguments"]
    assert first["arguments"] == ["install", "--force-reinstall", "--no-deps", str(wheel)]
    assert "cloudpickle" in second["arguments"]
    assert capsys.readouterr().out.endswith(f"Horovod {VERSION} works: gloo\n")


@pytest.mark.parametrize("mpi", [False, True])
def test_the_compilation_gets_its_settings(pip, mpi):
    build(mpi=mpi)
    (call,) = pip.calls("wheel")
    assert call["arguments"][-1] == f"horovod=={VERSION}"
    assert {"--no-build-isolation", "--no-deps", "--no-cache-dir"} <= set(call["arguments"])
    assert call["toolchain"] == TOOLCHAIN
    assert (call["HOROVOD_WITH_MPI"], call["HOROVOD_WITHOUT_MPI"]) == (("1", None) if mpi else (None, "1"))
    assert kept(Features(mpi=mpi, nccl=False)) != []
    assert kept(Features(mpi=not mpi, nccl=False)) == []


def test_setup_py_may_import_what_lies_beside_it_but_nothing_from_the_working_directory(pip, monkeypatch):
    """As Horovod's does, of which none could be built otherwise: commands set PYTHONSAFEPATH."""
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    build()
    (call,) = pip.calls("wheel")
    assert call["PYTHONSAFEPATH"] is None
    assert Path(call["cwd"]) == kept()[0].parent


def test_a_second_time_the_kept_wheel_is_installed(pip):
    build()
    build()
    assert pip.built() == 1
    assert [call["arguments"][-1] for call in pip.calls("install")].count(str(kept()[0])) == 2


def test_rebuild_builds_again(pip):
    build()
    before = kept()[0].read_text()
    build(rebuild=True)
    assert pip.built() == 2
    assert kept()[0].read_text() != before


def test_what_is_installed_is_left_alone(pip, monkeypatch, capsys):
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: None)
    monkeypatch.setattr(horovod_installation, "has", lambda feature: feature == "gloo")
    monkeypatch.setattr(horovod_installation, "version", lambda: "9.8")
    build()
    assert pip.calls("install") == pip.calls("wheel") == []
    assert capsys.readouterr().out == "Horovod 9.8 is already installed. --rebuild builds it again.\n"
    build(mpi=True)
    assert pip.built() == 1
    build(rebuild=True)
    assert pip.built() == 2


@pytest.mark.parametrize(
    ("marks", "features", "expected"),
    [
        ("gloo", PLAIN, True),
        ("gloo mpi nccl", PLAIN, True),
        ("mpi", PLAIN, False),
        ("gloo", Features(mpi=True, nccl=False), False),
        ("gloo mpi", Features(mpi=True, nccl=False), True),
        ("gloo mpi", Features(mpi=True, nccl=True), False),
        ("gloo mpi nccl", Features(mpi=True, nccl=True), True),
    ],
)
def test_what_is_asked_for_must_be_in_it(monkeypatch, marks, features, expected):
    monkeypatch.setattr(horovod_installation, "has", lambda feature: feature in marks.split())
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: None)
    assert is_installed(features) is expected
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: "it was built for another torch")
    assert not is_installed(features)


@pytest.mark.parametrize(("compiles", "has_mpi"), [(True, True), (False, False)])
def test_mpi_if_possible(pip, tmp_path, monkeypatch, capsys, compiles, has_mpi):
    for name in ("mpicxx", "mpirun"):
        program = tmp_path / name
        program.write_text(
            "#!/bin/sh\n" if compiles else "#!/bin/sh\necho 'a.cc:1: fatal error: no mpi.h' >&2; exit 1\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    build(mpi=None)
    (call,) = pip.calls("wheel")
    assert call["HOROVOD_WITH_MPI" if has_mpi else "HOROVOD_WITHOUT_MPI"] == "1"
    assert kept(Features(mpi=has_mpi, nccl=False)) != []
    lines = [line for line in capsys.readouterr().out.splitlines() if "MPI" in line]
    why = "mpicxx cannot compile a program that uses MPI: no mpi.h (Debian: libopenmpi-dev)"
    assert lines == ([] if compiles else [f"without MPI, with Gloo only: {why}. Install that for launcher=mpirun."])


def test_mpi_that_is_installed_is_left_alone(pip, tmp_path, monkeypatch, capsys):
    """Even where it can no longer be compiled."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: None)
    monkeypatch.setattr(horovod_installation, "has", lambda feature: True)
    monkeypatch.setattr(horovod_installation, "version", lambda: "9.8")
    build(mpi=None)
    assert capsys.readouterr().out == "Horovod 9.8 is already installed. --rebuild builds it again.\n"


def test_a_missing_tool_ends_it_before_anything_is_made(pip, tmp_path, monkeypatch):
    def refuse(features):
        raise ConfigurationError("building Horovod needs g++")

    monkeypatch.setattr(install_horovod, "check_tools", refuse)
    with pytest.raises(ConfigurationError, match=r"needs g\+\+"):
        build()
    assert not (tmp_path / "cache").exists()


def test_a_failed_compilation_names_the_log_and_the_compilers_complaint(pip, tmp_path):
    (pip.folder / "complaint").write_text(COMPLAINT + CONSEQUENCES)
    with pytest.raises(RunFailed) as caught:
        build()
    log = cache_folder(PLAIN.key) / "build.log"
    assert caught.value.failure.message.endswith(f"is in {log}")
    assert caught.value.failure.kind is Kind.PROGRAM_FAILED
    assert caught.value.failure.traceback.splitlines()[0] == COMPLAINT
    assert len(caught.value.failure.traceback.splitlines()) <= 8
    assert CONSEQUENCES.strip() in log.read_text()
    assert "[ 99%]" in log.read_text()
    assert kept() == []
    assert list((tmp_path / "scratch").iterdir()) == []
    (pip.folder / "complaint").unlink()
    build()
    assert len(kept()) == 1


def test_a_failed_rebuild_leaves_the_wheel(pip):
    build()
    before = kept()[0].read_text()
    (pip.folder / "complaint").write_text(COMPLAINT)
    with pytest.raises(RunFailed):
        build(rebuild=True)
    assert kept()[0].read_text() == before


def test_a_package_that_cannot_be_had_is_named(pip):
    (pip.folder / "no network").touch()
    with pytest.raises(RunFailed) as caught:
        build()
    assert "Could not find a version that satisfies the requirement wheel" in caught.value.failure.traceback


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fine\nCMake Error at CMakeLists.txt:3\nfine", "CMake Error at CMakeLists.txt:3"),
        ("a.cc:1: fatal error: mpi.h: No such file", "a.cc:1: fatal error: mpi.h: No such file"),
        ("ModuleNotFoundError: No module named 'x'\n", "ModuleNotFoundError: No module named 'x'"),
        ("[ 9%] Building gloo/common/error.cc.o\nc++ -Werror -c error.cc\nERROR: no", "ERROR: no"),
        ("python: No module named pip\n", "python: No module named pip"),
        ("", ""),
    ],
)
def test_complaints_are_found(tmp_path, text, shown):
    """Where there is none of a known form, the end of the log is shown."""
    (tmp_path / "log").write_text(text)
    assert failed(tmp_path / "log").failure.traceback == shown


@pytest.mark.parametrize(("value", "used"), [("elsewhere", True), ("", False), (None, False)])
def test_the_cache_follows_xdg(tmp_path, monkeypatch, value, used):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / value) if value else "")
    assert cache_folder("wheel") == tmp_path / ("elsewhere" if used else ".cache") / "manyheads" / "wheel"


@pytest.mark.parametrize(
    ("percents", "shown"), [([5, 9], [5, 9]), ([9, 9, 55, 54], [9, 55, 54]), ([50, 100, 100, 3], [50, 100, 3])]
)
def test_programs_see_how_far_it_is(pip, capfd, monkeypatch, percents, shown):
    monkeypatch.setenv("MANYHEADS_PROGRESS", "json")
    (pip.folder / "percents").write_text(json.dumps(percents))
    build()
    out, err = capfd.readouterr()
    assert out.startswith(f"building Horovod {VERSION} against torch ")
    events = [json.loads(line) for line in err.splitlines() if line.startswith('{"event"')]
    done = [number for number, _ in groupby(each["done"] for each in events)]  # repeated after a while
    assert done == [0, *shown, 100]
    assert events[-1]["what"] == "installing Horovod"
