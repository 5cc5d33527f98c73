"""What torch.compile finds on a machine."""

import pytest

from manyheads.runner.machine import software


@pytest.fixture
def path(tmp_path, monkeypatch):
    """PATH with these programs alone, and Python's headers."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(software.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    (tmp_path / "Python.h").touch()
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)

    def have(*programs: str) -> None:
        for name in programs:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)

    return have


def test_compilers_are_named(path):
    path("gcc", "clang++")
    assert software.description() == "for GPUs by gcc, for CPUs by clang++"


def test_a_missing_one_is_named_with_its_package(path):
    path("gcc")
    missing = "g++ or clang++ is not on PATH (Debian: g++)"
    assert software.description() == f"for GPUs by gcc, for CPUs unavailable: {missing}"


def test_one_that_a_variable_names_counts_alone(path, monkeypatch):
    path("gcc", "g++")
    monkeypatch.setenv("CC", "tcc")
    assert software.description().startswith("for GPUs unavailable: tcc is not on PATH")


def test_without_python_s_headers_there_is_none(path, tmp_path):
    (tmp_path / "Python.h").unlink()
    assert software.description() == "unavailable: Python.h is missing (Debian: python3-dev)"
