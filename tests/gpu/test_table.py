"""What `make test-gpu` says."""

import sys

import pytest

from tests.conftest import ROOT, execute
from tests.tail import tail


@pytest.mark.slow
@pytest.mark.tail
def test_without_a_gpu_nothing_runs_and_that_is_a_failure(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = execute(sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu", cwd=ROOT)
    assert done.code != 0
    assert "Nothing could run: this machine has no NVIDIA GPU" in done.out
    assert "Horovod on CUDA tensors" in done.out
    assert "passed" not in done.out
    assert "skipped" not in done.out


HOOKS = """
from tests.gpu.conftest import *
hardware.gpu_names = lambda: ["Some GPU"]
"""
TESTS = """
import pytest

@pytest.mark.gpu("one thing")
@pytest.mark.parametrize("value", [1, 2])
def test_one(value, record_property):
    record_property("measured", "fast")
    assert value == 1

@pytest.mark.gpu("another", gpus=2)
def test_other():
    raise AssertionError
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", tail("2")])
def test_it_tells_what_ran_and_what_did_not_in_one_process_or_several(tmp_path, workers):
    for name, text in {"conftest.py": HOOKS, "test_them.py": TESTS, "pytest.ini": "[pytest]\nmarkers = gpu"}.items():
        (tmp_path / name).write_text(text)
    done = execute(sys.executable, "-m", "pytest", "-m", "gpu", "-n", workers, ".", cwd=tmp_path)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.out.splitlines() if line.startswith("│")]
    found = {row[0]: (row[1], row[3]) for row in rows}
    assert found["one thing: 1"] == ("passed", "fast")
    assert found["one thing: 2"] == ("failed", "fast")
    assert found["another"] == ("not run", "2 GPUs are needed, and 1 can be seen")
