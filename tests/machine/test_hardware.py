import os
import subprocess
import sys

import pynvml
import pytest

from manyheads.runner.machine import gpus, hardware
from manyheads.runner.machine.gpus import Board, CUDADevice

GPUS = [Board("First", "GPU-aaaa-1111"), Board("Second", "GPU-bbbb-2222"), Board("Third", "GPU-cccc-3333")]
SLICES = (CUDADevice("Slice 1", "MIG-1111"), CUDADevice("Slice 2", "MIG-2222"))
CUT = Board("Cut", "GPU-dddd-4444", SLICES)


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
        ("0,0", []),
    ],
)
def test_cuda_visible_devices_is_heeded_in_its_order(monkeypatch, visible, names):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hardware.gpu_names() == names


@pytest.mark.parametrize(
    ("boards", "visible", "names"),
    [
        ([CUT], None, ["Slice 1"]),
        ([CUT], "0", ["Slice 1"]),
        ([CUT], "MIG-2222", ["Slice 2"]),
        ([CUT], "MIG-1111,MIG-2222", ["Slice 1"]),
        ([CUT], "GPU-dddd", ["Slice 1"]),
        ([CUT], "MIG-9999", []),
        ([GPUS[0], CUT], None, ["Slice 1"]),
        ([GPUS[0], CUT], "0", ["First"]),
        ([GPUS[0], CUT._replace(slices=())], None, ["First"]),
    ],
)
def test_of_gpus_that_are_cut_up_the_first_slice_is_a_device(monkeypatch, boards, visible, names):
    monkeypatch.setattr(hardware, "_driver", lambda: ("999.9", boards))
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hardware.gpu_names() == names


@pytest.mark.usefixtures("three_gpus")
def test_jobs_name_gpus_so_that_the_order_of_counting_does_not_matter(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(hardware.gpu_ids()))
    assert hardware.gpu_indices() == [2, 0]


@pytest.mark.parametrize(
    ("boards", "cuda", "visible", "why"),
    [
        (GPUS, "13.0", None, None),
        (GPUS, "13.0", "GPU-9999", "has First and 2 more, but CUDA_VISIBLE_DEVICES=GPU-9999 names none"),
        (GPUS, "13.0", "", "has First and 2 more, but CUDA_VISIBLE_DEVICES= hides them"),
        (GPUS[:1], "13.0", "-1", "has First, but CUDA_VISIBLE_DEVICES=-1 hides it"),
        ([CUT], "13.0", "MIG-9999", "has Cut, but CUDA_VISIBLE_DEVICES=MIG-9999 names none"),
        (GPUS[:1], None, None, "has First, but the installed torch is a CPU build"),
        ([CUT._replace(slices=())], "13.0", None, "in MIG mode but has no instance"),
        ([], "13.0", None, "NVIDIA's driver 999.9 finds no GPU that responds"),
    ],
)
def test_says_why_gpus_go_unused(monkeypatch, boards, cuda, visible, why):
    monkeypatch.setattr(hardware, "_driver", lambda: ("999.9", boards))
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = hardware.unused_gpus()
    assert found == why if why is None else why in found


def test_a_gpu_that_is_lost_is_left_out(monkeypatch):
    """Two boards: the first has fallen off the bus, the second is cut into two slices, of which one is still there."""

    def refuse(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    def slice_of(handle, index):
        return f"{handle}/{index}" if index == 0 else refuse()

    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"999.9",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: refuse() if handle == 0 else f"name of {handle}",
        "nvmlDeviceGetUUID": lambda handle: f"uuid of {handle}",
        "nvmlDeviceGetMigMode": lambda handle: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 2,
        "nvmlDeviceGetMigDeviceHandleByIndex": slice_of,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    assert gpus.read() == ("999.9", [Board("name of 1", "uuid of 1", (CUDADevice("name of 1/0", "uuid of 1/0"),))])


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
    assert hardware.cpu_cores() <= len(os.sched_getaffinity(0))


def test_cpu_model_is_one_line():
    assert hardware.cpu_model()
    assert "\n" not in hardware.cpu_model()


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8), ("", 8)]
)
def test_a_containers_quota_counts_complete_cores(tmp_path, monkeypatch, limit, cores):
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    monkeypatch.setattr(hardware, "CPU_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)})
    assert hardware.cpu_cores() == cores
