import os
import subprocess
import sys

import pytest

from manyheads.runner.machine import hardware

GPUS = [("First", "GPU-aaaa-1111"), ("Second", "GPU-bbbb-2222"), ("Third", "GPU-cccc-3333")]


@pytest.fixture
def three_gpus(monkeypatch):
    """No test machine is sure to have three GPUs; the choice among them is ours, so the driver's answer is given."""
    monkeypatch.setattr(hardware, "_driver", lambda: ("999.9", GPUS))
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: "13.0")


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["First", "Second", "Third"]),
        ("", []),
        ("-1", []),
        ("1", ["Second"]),
        ("2,0", ["Third", "First"]),
        (" 0 , 1 ", ["First", "Second"]),
        ("0,7,1", ["First"]),
        ("0,-1,1", ["First"]),
        ("GPU-bbbb", ["Second"]),
        ("GPU-cccc-3333,0", ["Third", "First"]),
        ("GPU-unknown,0", []),
    ],
)
def test_cuda_visible_devices_is_heeded_in_its_order(monkeypatch, visible, names):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hardware.gpu_names() == names


@pytest.mark.usefixtures("three_gpus")
def test_a_cpu_build_of_torch_sees_no_gpu(monkeypatch):
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: None)
    assert hardware.gpu_names() == []


def test_agrees_with_torch():
    import torch

    assert hardware.torch_cuda_version() == torch.version.cuda
    assert len(hardware.gpu_names()) == torch.cuda.device_count()


def test_finds_all_without_importing_torch():
    code = (
        "import sys; from manyheads.runner.machine import hardware as h\n"
        "h.gpu_names(), h.torch_cuda_version(), h.driver_version(), h.cpu_cores(), h.cpu_model()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system can't pin processes to cores")
def test_counts_only_the_cores_it_may_use():
    code = (
        "import os; from manyheads.runner.machine.hardware import cpu_cores; "
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(cpu_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "1"
    assert hardware.cpu_cores() == len(os.sched_getaffinity(0))


def test_cpu_model_is_one_line():
    assert hardware.cpu_model()
    assert "\n" not in hardware.cpu_model()
