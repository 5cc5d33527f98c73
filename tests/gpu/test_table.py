"""What `make test-gpu` says where there is no GPU."""

import sys

import pytest

from tests.conftest import ROOT, execute


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
