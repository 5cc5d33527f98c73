"""The ordinary suite is the same on a machine with GPUs: conftest.py hides them."""

from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import Board


def test_only_tests_marked_gpu_see_gpus(monkeypatch):
    monkeypatch.setattr(hardware, "_driver", lambda: ("999.9", [Board("Some GPU", "GPU-1")]))
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: "13.0")
    assert hardware.gpu_names() == []
