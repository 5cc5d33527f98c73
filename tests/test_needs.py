"""Tests that are skipped say how to get what is missing, and are all counted."""

import re
import shutil
import tomllib
from types import SimpleNamespace

import pytest

from tests import needs
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(autouse=True)
def _anew():
    needs.missing.cache_clear()
    yield
    needs.missing.cache_clear()


@pytest.mark.parametrize("name", needs.LIBRARIES)
def test_a_library_comes_with_an_extra_or_a_group(monkeypatch, name):
    monkeypatch.setattr(needs, "find_spec", lambda _: None)
    extra, group = (re.search(form, needs.LIBRARIES[name]) for form in (r"\.\[(\w+)\]", r"--group (\w+)"))
    assert needs.missing(name) == f"{name} is not installed: pip install {needs.LIBRARIES[name]}"
    assert extra is None or extra[1] in PROJECT["project"]["optional-dependencies"]
    assert group is None or group[1] in PROJECT["dependency-groups"]


@pytest.mark.parametrize("name", needs.PROGRAMS)
def test_of_a_program_the_package_is_named_that_ci_installs(monkeypatch, name):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    programs, packages = needs.PROGRAMS[name]
    assert needs.missing(name) == f"{', '.join(programs.split())} not on PATH: apt-get install {packages}"
    assert packages == "gcc" or all(package in (ROOT / ".ci" / "run").read_text() for package in packages.split())


def test_horovod_and_its_mpi(monkeypatch):
    from manyheads.runner.parallel import horovod_installation  # a tree may be without it

    monkeypatch.setattr(horovod_installation, "unavailable", lambda: None)
    monkeypatch.setattr(horovod_installation, "has", lambda feature: False)
    assert needs.missing("horovod") is None
    assert needs.missing("mpi").startswith("Horovod was built without MPI: apt-get install openmpi-bin libopenmpi-dev")
    needs.missing.cache_clear()
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: "Horovod was built for torch 1.0")
    monkeypatch.setattr(horovod_installation, "version", lambda: "0.28.1")
    assert needs.missing("horovod") == needs.missing("mpi") == "Horovod was built for torch 1.0"


def test_no_test_file_hides_how_many_tests_it_skips():
    """What skips a whole file, or leaves parameters out, is in no table."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert "importorskip" not in path.read_text().replace('"importorskip"', ""), path


def report(when="call", reason=None, **properties):
    return SimpleNamespace(when=when, longrepr=("file", 1, f"Skipped: {reason}"), user_properties=[*properties.items()])


def test_the_table_counts_what_each_missing_thing_cost():
    written = []
    stats = {
        "skipped": [report("setup", "no Ray: get it"), report("setup", "no Ray: get it"), report(reason="no GPU")],
        "passed": [report(**{needs.PARTLY: "no Ray: get it"}), report()],
        "": [report("teardown", **{needs.PARTLY: "no Ray: get it"})],
    }
    needs.pytest_terminal_summary(SimpleNamespace(stats=stats, _tw=SimpleNamespace(fullwidth=80), write=written.append))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in "".join(written).splitlines() if "│" in line]
    assert rows == [["2", "1", "no Ray: get it"], ["1", "", "no GPU"]]


def test_where_nothing_is_missing_there_is_no_table():
    needs.pytest_terminal_summary(SimpleNamespace(stats={"passed": [report()]}))
