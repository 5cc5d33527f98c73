"""Which Horovod is installed and what is compiled in, told by folders and programs as the installers leave them."""

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from manyheads.runner.parallel import horovod_installation as horovod
from manyheads.runner.parallel.horovod_installation import BUILD, MARKS

TORCH = metadata.version("torch")
LIBRARY = "horovod/torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so"
VERSIONS = {
    "Open MPI": "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
    "orterun": "orterun (OpenRTE) 2.1.1",
    "MPICH": "HYDRA build details:\n    Version:                                 4.0.2",
    "Intel MPI": "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307",
    "nothing": "",
}


@pytest.fixture(autouse=True)
def _forgets():
    """What is found is found once in a process."""
    caches = [value for value in vars(horovod).values() if hasattr(value, "cache_clear")]
    assert len(caches) > 3
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site folder, the only one that may hold a Horovod; this machine's torch is known there too."""
    (tmp_path / "torch.dist-info").mkdir()
    (tmp_path / "torch.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH}\n")
    others = [entry for entry in sys.path if entry and not (Path(entry) / "horovod").is_dir()]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.fixture
def installed(site):
    """A Horovod that would raise if it were imported, with these marks in its library; None: without a library."""

    def pretend(marks: tuple[str, ...] | None, *, torch: str | None = TORCH) -> None:
        (site / "horovod" / "torch").mkdir(parents=True)
        (site / "horovod" / "__init__.py").write_text("raise ImportError('only looked for')")
        (site / "horovod-9.8.dist-info").mkdir()
        (site / "horovod-9.8.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 9.8\n")
        if marks is not None:
            names = b"\0".join(b"N7horovod6common14" + MARKS[mark] + b"E" for mark in marks)
            (site / LIBRARY).write_bytes(b"\x7fELF" + bytes(5000) + names + bytes(100))
        if torch is not None:
            (site / "horovod" / "metadata.json").write_text(json.dumps({"pytorch": torch, "dummy": "none"}))

    return pretend


@pytest.fixture
def mpirun(tmp_path, monkeypatch):
    """The only program on PATH is an mpirun that answers so."""

    def pretend(answer: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "mpirun").write_text(f"#!/bin/sh\necho {shlex.quote(answer)}\n")
        (folder / "mpirun").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return pretend


@pytest.mark.parametrize("clone", [(), ("horovod/setup.py",)], ids=["nothing", "a clone"])
def test_not_installed(site, clone):
    for name in clone:
        (site / name).parent.mkdir()
        (site / name).touch()
    assert horovod.version() is None
    reason = horovod.unavailable()
    assert reason.startswith(f"Horovod is not installed. Build it with `{BUILD}`")
    assert "Or use parallel=ddp with launcher=spawn or torchrun" in reason
    assert horovod.controllers() == []
    assert horovod.built_for() == "unknown"


@pytest.mark.parametrize("marks", [None, ()], ids=["no library", "a library without controllers"])
def test_without_a_library_it_must_be_built_again(installed, marks):
    installed(marks)
    assert horovod.version() == "9.8"
    assert horovod.unavailable() == (
        f"Horovod is installed without its library for PyTorch. Build it with `{BUILD} --rebuild`"
    )
    assert not any(map(horovod.has, MARKS))


@pytest.mark.parametrize("torch", [TORCH, TORCH.partition("+")[0] + "+cu999"])
def test_built_for_this_torch(installed, torch):
    """The version that torch gives itself names its CUDA as well."""
    installed(("gloo",), torch=torch)
    assert horovod.unavailable() is None
    assert horovod.built_for() == torch


@pytest.mark.parametrize(
    ("torch", "named"), [("1.2.3+cpu", "1.2.3+cpu"), (TORCH + "0", TORCH + "0"), (None, "unknown")]
)
@pytest.mark.parametrize(("marks", "options"), [(("gloo",), ""), (("gloo", "mpi", "nccl"), " --mpi --nccl")])
def test_built_for_another_torch(installed, torch, named, marks, options):
    installed(marks, torch=torch)
    reason = horovod.unavailable()
    assert reason.startswith(f"Horovod was built for torch {named}, not for {TORCH}.")
    assert reason.endswith(f"`{BUILD}{options}`")


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_metadata_that_does_not_say_is_another_torch(installed, site, text):
    installed(("gloo",))
    (site / "horovod" / "metadata.json").write_text(text)
    assert horovod.built_for() == "unknown"
    assert "for torch unknown" in horovod.unavailable()


@pytest.mark.parametrize("marks", [("gloo",), ("mpi",), ("gloo", "mpi"), ("gloo", "nccl"), ("gloo", "mpi", "nccl")])
def test_what_was_compiled_in(installed, marks):
    installed(marks)
    assert tuple(name for name in MARKS if horovod.has(name)) == marks
    assert tuple(horovod.controllers()) == tuple(name for name in marks if name != "nccl")


@pytest.mark.parametrize(
    ("marks", "asked", "command"),
    [
        (("gloo",), (), BUILD),
        (("gloo",), ("mpi",), f"{BUILD} --mpi"),
        (("gloo",), ("nccl",), f"{BUILD} --nccl"),
        (("gloo", "mpi"), ("nccl",), f"{BUILD} --mpi --nccl"),
        (("gloo", "nccl"), ("mpi",), f"{BUILD} --mpi --nccl"),
        (("mpi",), ("gloo",), f"{BUILD} --mpi"),
    ],
)
def test_building_again_loses_nothing(installed, marks, asked, command):
    installed(marks)
    assert horovod.build_with(*asked) == command


@pytest.mark.parametrize(
    ("kind", "version"),
    [("Open MPI", "4.1.4"), ("orterun", "2.1.1"), ("MPICH", None), ("Intel MPI", None), ("nothing", None)],
)
def test_open_mpi_is_told_from_others(mpirun, kind, version):
    mpirun(VERSIONS[kind])
    assert horovod.open_mpi() == version


def test_no_mpirun(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert horovod.open_mpi() is None


def test_it_is_asked_once(mpirun, monkeypatch):
    """Each composed config asks."""
    mpirun(VERSIONS["Open MPI"])
    first = horovod.open_mpi()
    monkeypatch.setenv("PATH", "")
    assert horovod.open_mpi() == first == "4.1.4"
