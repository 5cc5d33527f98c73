"""Wings that can be deleted with their configs and tests: everything else works, and nothing refers to them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, ROOT, Done
from tests.house.imports import broken, importers
from tests.house.wings import WINGS

pytestmark = pytest.mark.ci


def broken_modules(paths: Collection[str]) -> set[str]:
    """The modules of the product that can't be imported without these paths."""
    return {module for module in broken(paths) if not module.startswith("tests.")}


def broken_tests(paths: Collection[str]) -> set[str]:
    """The modules of tests that pytest can't collect without these paths."""
    return {module for module in broken(paths) if module.startswith("tests.")}


LEFT: dict[Callable[[Collection[str]], set[str]], dict[str, int]] = {  # how many there still are; 0 has no entry
    broken_modules: {},
    importers: {},
    broken_tests: {},
}
AIMS = [
    pytest.param(
        counted,
        name,
        id=f"{counted.__name__}-{name}",
        marks=[pytest.mark.xfail(reason=f"{left[name]} {counted.__name__}", strict=True)] if name in left else [],
    )
    for counted, left in LEFT.items()
    for name in WINGS
]
OFF = [name for name in WINGS if name not in {*LEFT[broken_modules], *LEFT[importers]}]  # really deleted below


def test_all_paths_exist():
    assert [path for paths in WINGS.values() for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("counted", "name"), AIMS)
def test_nothing_outside_depends_on_it(counted: Callable[[Collection[str]], set[str]], name):
    assert counted(WINGS[name]) == set()


@pytest.mark.processes
@pytest.mark.parametrize(
    "names", [pytest.param(OFF, id="all"), *(pytest.param([n], id=n, marks=pytest.mark.tail) for n in OFF)]
)
def test_a_tree_without_it_is_collected_composes_trains_and_sweeps(names, tmp_path):
    root = tmp_path / "tree"
    for folder in ("runner", "launchers", "conf", "tests", ".names", "docs", ".ci"):
        shutil.copytree(ROOT / folder, root / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("run.py", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile"):
        shutil.copy(ROOT / file, root)
    for path in {root / path for name in names for path in WINGS[name]}:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> Done:
        done = subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    composed = run("run.py", "--cfg", "job").out
    assert "parallel:\n  _target_: manyheads.runner.parallel.rank.single" in composed
    doctor = run("-m", "runner", "doctor").out
    assert "What it can run" in doctor
    sweep = Path("outputs/sweep")
    run("run.py", "-m", *FAST, "seed=1,2", "parallel=ddp", "launcher.nproc_per_node=1", f"hydra.sweep.dir={sweep}")
    assert [RunFolder(root / sweep / number).read_result()["status"] for number in "01"] == ["completed"] * 2
    if "report" not in names:
        assert "2 of 2 jobs completed" in run("-m", "runner", "report", str(sweep)).out
    if not LEFT[broken_tests].keys() & {*names}:
        run("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests")
