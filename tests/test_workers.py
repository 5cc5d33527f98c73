"""Workers that are forked after collecting report as xdist's own do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, is_worker

TESTS = """
import os, pytest

def test_passes(tmp_path, worker_id):
    print("printed by a passing test")
    assert tmp_path.parent.name == f"popen-{worker_id}" == f"popen-{os.environ['PYTEST_XDIST_WORKER']}"

@pytest.mark.parametrize("number", range(2))
def test_fails(number):
    print(f"printed by number {number}")
    os.write(2, b"written to the descriptor")
    assert number + 1 == 7

def test_ends_its_worker():
    os._exit(9)

def test_comes_after_it(): ...
"""


def test_a_worker_is_a_fork_of_what_has_collected(request):
    assert ("tests.zygote" in sys.orig_argv) == is_worker(request.config)


def pytest_of(file: Path, text: str, *options: str) -> tuple[int, str]:
    """The exit code of pytest on two workers with a file of this text, and what it printed."""
    file.write_text(text)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TESTS_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "tests.conftest", "--rootdir", file.parent]
    done = subprocess.run(
        [*command, f"--confcutdir={file.parent}", "-c", ROOT / "pyproject.toml", *options, file],
        cwd=ROOT,
        env=plain | {"PYTHONPATH": os.pathsep.join([str(ROOT / ".names"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.tail
def test_what_passes_fails_prints_or_dies_is_reported(tmp_path):
    code, printed = pytest_of(tmp_path / "test_some.py", TESTS)
    assert code == 1
    assert "3 failed, 2 passed" in printed, printed
    assert "assert (1 + 1) == 7" in printed
    assert "crashed while running" in printed
    assert printed.count("printed by number 1") == 1
    assert printed.count("written to the descriptor") == 4  # each time with the line of the source
    assert "printed by a passing test" not in printed


@pytest.mark.tail
def test_what_cannot_be_collected_is_reported(tmp_path):
    code, printed = pytest_of(tmp_path / "test_some.py", "import nothing_of_this_name\n")
    assert code == 1
    assert "No module named 'nothing_of_this_name'" in printed, printed


@pytest.mark.tail
def test_what_does_not_exist_is_reported(tmp_path):
    code, printed = pytest_of(tmp_path / "test_some.py", TESTS, "--deselect=x", str(tmp_path / "test_other.py"))
    assert code != 0
    assert "file or directory not found" in printed, printed
