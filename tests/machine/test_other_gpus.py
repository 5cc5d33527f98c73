"""GPUs of AMD, Intel and Apple: used, or said not to be; never silently the CPU."""

import platform
import sys

import pytest

from manyheads.runner.machine import hardware, other_gpus
from tests.in_process import typed

GFX942 = "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\n"
INTEGRATED = "cpu_cores_count 16\nsimd_count 4\ngfx_target_version 100306\n"
PROCESSOR = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """With these nodes of AMD's driver, for a torch that was built for these; there is no driver of NVIDIA."""

    def pretend(*nodes: str, **builds: str) -> None:
        for number, properties in enumerate(nodes):
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "properties").write_text(properties)
        monkeypatch.setattr(other_gpus, "KFD", tmp_path)
        monkeypatch.setattr(hardware, "torch_build", builds.get)
        monkeypatch.setattr(hardware, "_driver", lambda: ("", []))
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)

    return pretend


@pytest.mark.parametrize(
    ("variables", "indices"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, [0, 1]),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "0,7"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_rocm_calls_its_gpus_cuda(machine, monkeypatch, variables, indices):
    machine(PROCESSOR, GFX942, GFX942, GFX942, hip="6.4.1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hardware.gpu_indices() == indices
    assert set(hardware.gpu_names()) == ({"AMD gfx942"} if indices else set())
    assert typed().trainer.device == ("cuda" if indices else "cpu")


def test_ranks_are_as_many_as_amd_gpus(machine):
    machine(GFX942, GFX942, hip="6.4.1")
    run = typed("parallel=ddp")
    assert (run.launcher.nproc_per_node, run.trainer.device) == (2, "cuda")


@pytest.mark.parametrize(
    ("nodes", "builds", "variables", "reason"),
    [
        (
            [],
            {"hip": "6.4.1"},
            {},
            "The installed torch is for ROCm 6.4.1, but the kernel lists no AMD GPU; see rocminfo",
        ),
        (
            [GFX942],
            {"hip": "6.4"},
            {"HIP_VISIBLE_DEVICES": "0"},
            "HIP_VISIBLE_DEVICES is set; set CUDA_VISIBLE_DEVICES",
        ),
        (
            [GFX942],
            {"hip": "6.4"},
            {"CUDA_VISIBLE_DEVICES": "3"},
            "CUDA_VISIBLE_DEVICES=3 names none of this machine's 1",
        ),
        (
            [GFX942, GFX942],
            {},
            {},
            "This machine has AMD gfx942 and 1 more, but the installed torch is not a ROCm build",
        ),
        ([GFX942], {"cuda": "13.0"}, {}, "This machine has AMD gfx942, but the installed torch is not a ROCm build"),
        (
            [PROCESSOR],
            {"xpu": "20250101"},
            {},
            "The installed torch is for Intel's GPUs (XPU), which no strategy here uses",
        ),
    ],
)
def test_the_cpu_is_said_to_be_used_instead(machine, monkeypatch, capsys, nodes, builds, variables, reason):
    machine(*nodes, **builds)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert typed().trainer.device == "cpu"
    warning = capsys.readouterr().err
    assert warning.startswith("warning: trainer.device=auto: this run trains on the CPU. ")
    assert reason in warning


def test_apple_s_gpu_is_said_to_be_unused(machine, monkeypatch):
    machine()
    assert hardware.unused_gpus() is None
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert hardware.unused_gpus() == "No strategy here uses Apple's GPU (MPS)"


@pytest.mark.parametrize(("nodes", "builds"), [([], {}), ([INTEGRATED], {}), ([PROCESSOR], {"cuda": "13.0"})])
def test_where_there_is_no_gpu_nothing_is_said(machine, capsys, nodes, builds):
    machine(*nodes, **builds)
    assert typed().trainer.device == "cpu"
    assert capsys.readouterr().err == ""


def test_the_build_is_read_from_torch_s_own_file():
    import torch

    assert hardware.torch_build("cuda") == torch.version.cuda
    assert hardware.torch_build("hip") == torch.version.hip
    assert hardware.torch_build("xpu") == getattr(torch.version, "xpu", None)
