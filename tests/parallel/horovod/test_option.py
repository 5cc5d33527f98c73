"""What Horovod and its launchers are refused together with, on machines that are assumed and not this one."""

import sys

import pytest

from manyheads.runner.commands.doctor.examine import note
from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.parallel import horovod_installation
from manyheads.runner.run import hosts
from tests.in_process import config, ranks

ALL = ("gloo", "mpi", "nccl", "cuda")
ADASUM = ("parallel.op=adasum", "launcher=mpirun", "parallel.num_groups=0")
O2 = ("precision=amp", "precision.level=O2")
BUILD = horovod_installation.BUILD


def composed(*overrides: str) -> dict:
    return config("data=synthetic", "data.batch_size=96", *overrides)


@pytest.fixture
def machine(monkeypatch):
    """Decide as on a machine with such a Horovod, such an Open MPI and so many GPUs; 96 cores, called a, b and c."""

    def pretend(
        features: tuple[str, ...] = ALL, *, reason: str | None = None, open_mpi: str | None = "4.1.4", gpus: int = 0
    ) -> None:
        monkeypatch.setattr(horovod_installation, "unavailable", lambda: reason)
        monkeypatch.setattr(horovod_installation, "has", lambda feature: feature in features)
        monkeypatch.setattr(horovod_installation, "built_for", lambda: "9.9.0")
        monkeypatch.setattr(horovod_installation, "open_mpi", lambda: open_mpi)
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["Some GPU"] * gpus)
        monkeypatch.setattr(hardware, "cpu_cores", lambda: 96)
        monkeypatch.setattr(hosts, "names_of_this_machine", lambda: {"a", "b", "c"})

    pretend()
    return pretend


@pytest.mark.parametrize(
    ("features", "chosen", "expected"),
    [
        (("gloo", "mpi"), "auto", "gloo"),
        (("gloo",), "auto", "gloo"),
        (("mpi",), "auto", "mpi"),
        (("gloo", "mpi"), "mpi", "mpi"),
        (("gloo", "mpi"), "gloo", "gloo"),
    ],
)
@pytest.mark.parametrize("parallel", ["parallel=horovod", "parallel=ddp"])
def test_the_controller_is_decided(machine, parallel, features, chosen, expected):
    machine(features)
    done = composed(parallel, "launcher=horovodrun", f"launcher.controller={chosen}")
    assert done["launcher"]["controller"] == expected


@pytest.mark.parametrize(
    ("features", "overrides", "message"),
    [
        (
            ("gloo",),
            ["launcher.controller=mpi"],
            rf"=mpi: .* without MPI\. .* `{BUILD} --mpi`, or .*\.controller=gloo ",
        ),
        (
            ("mpi",),
            ["launcher.controller=gloo"],
            rf"=gloo: .* without GLOO\. .* `{BUILD} --mpi`, or .*\.controller=mpi ",
        ),
        (
            ("gloo",),
            ["launcher=mpirun"],
            rf"^parallel=horovod launcher=mpirun: .* without MPI\. .* `{BUILD} --mpi`, or",
        ),
        (("gloo", "nccl"), ["launcher=mpirun"], rf"without MPI\. Build it again with `{BUILD} --mpi --nccl`, or use"),
    ],
)
def test_a_controller_that_was_not_built_is_refused(machine, features, overrides, message):
    machine(features)
    with pytest.raises(ConfigurationError, match=message):
        composed("parallel=horovod", *overrides)


@pytest.mark.parametrize("parallel", ["parallel=horovod", "parallel=ddp"])
@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        (
            ["launcher=mpirun"],
            r"^launcher=mpirun: Open MPI's mpirun is not on PATH\. Install it .* launcher=torchrun\.$",
        ),
        (
            ["launcher=horovodrun", "launcher.controller=mpi"],
            r"^launcher\.controller=mpi: Open MPI's mpirun is not on PATH\. .*, or launcher\.controller=gloo\.$",
        ),
    ],
)
def test_without_open_mpi_its_launchers_are_refused(machine, parallel, launcher, message):
    machine(open_mpi=None)
    with pytest.raises(ConfigurationError, match=message):
        composed(parallel, *launcher)


def test_without_open_mpi_gloo_is_left(machine):
    machine(open_mpi=None)
    assert composed("parallel=horovod")["launcher"]["controller"] == "gloo"


@pytest.mark.parametrize(
    ("overrides", "named"),
    [(["parallel=horovod"], "parallel=horovod"), (["parallel=ddp", "launcher=horovodrun"], "launcher=horovodrun")],
)
def test_without_horovod_what_needs_it_is_refused(machine, overrides, named):
    """What was asked for is named, not the launcher that it brings."""
    machine((), reason="it is not installed. Build it")
    with pytest.raises(ConfigurationError, match=rf"^{named}: it is not installed\. Build it\.$"):
        composed(*overrides)


def test_without_horovod_it_is_refused_under_mpirun(machine):
    machine((), reason="it is not installed. Build it")
    with pytest.raises(ConfigurationError, match=r"^parallel=horovod: it is not installed\. Build it\.$"):
        composed("parallel=horovod", "launcher=mpirun")


def test_ddp_under_mpirun_needs_no_horovod(machine):
    machine((), reason="it is not installed")
    assert composed("parallel=ddp", "launcher=mpirun")["launcher"]["name"] == "mpirun"


@pytest.mark.parametrize("launcher", ["inline", "spawn", "torchrun"])
def test_other_launchers_cannot_start_its_ranks(machine, launcher):
    message = rf"^launcher={launcher} can't start Horovod's ranks\. Set launcher=horovodrun or launcher=mpirun\.$"
    with pytest.raises(ConfigurationError, match=message):
        composed("parallel=horovod", f"launcher={launcher}")


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("set_to", ["auto", "same"])
def test_backward_passes_follow_accumulation(machine, accumulation, set_to):
    passes = accumulation if set_to == "same" else "auto"
    done = composed(
        "parallel=horovod",
        f"trainer.grad_accumulation={accumulation}",
        f"parallel.backward_passes_per_step={passes}",
    )
    assert done["parallel"]["backward_passes_per_step"] == accumulation


@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
@pytest.mark.parametrize(
    ("machines", "per_node", "count"),
    [
        ([], "auto", 2),
        ([], "4", 4),
        (["launcher.hosts=[a:4]"], "auto", 4),
        (["launcher.hosts=[a:4,b:4,c:4]"], "auto", 12),
        (["launcher.hosts=[a:4,b:4,c:4]"], "4", 12),
    ],
)
def test_ranks_are_hosts_times_ranks_on_each(machine, launcher, machines, per_node, count):
    done = composed("parallel=horovod", f"launcher={launcher}", *machines, f"launcher.nproc_per_node={per_node}")
    assert ranks(done) == count
    assert done["launcher"]["threads_per_rank"] == f"auto:{96 // done['launcher']['nproc_per_node']}"


@pytest.mark.parametrize("listed", ["hosts", "hostfile"])
@pytest.mark.parametrize(
    ("launcher", "typed"),
    [
        ("horovodrun", "MASTER_ADDR=d horovodrun -np 8 -H d:4,e:4 python run.py parallel=horovod seed=1"),
        ("mpirun", "mpirun -np 8 -H d:4,e:4 -x MASTER_ADDR=d python run.py parallel=horovod seed=1"),
    ],
)
def test_on_several_machines_users_start_the_program(machine, monkeypatch, tmp_path, launcher, typed, listed):
    (tmp_path / "hosts").write_text("d slots=4\ne slots=4\n")
    named = "launcher.hosts=[d:4,e:4]" if listed == "hosts" else f"launcher.hostfile={tmp_path / 'hosts'}"
    words = ("parallel=horovod", f"launcher={launcher}", named, "seed=1")
    monkeypatch.setattr(sys, "orig_argv", ["python", "run.py", *words])
    with pytest.raises(ConfigurationError) as caught:
        composed(*words)
    assert str(caught.value) == (
        f"{named}: launcher={launcher} starts ranks on this machine only; on several, type: {typed}"
    )


def test_a_hostfile_counts_as_its_list_and_becomes_absolute(machine, tmp_path, monkeypatch):
    """A run may go on from another directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("a slots=3\nb slots=3\n")
    done = composed("parallel=ddp", "launcher=mpirun", "launcher.hostfile=hosts")
    assert ranks(done) == 6
    assert done["launcher"]["hostfile"] == str(tmp_path / "hosts")


def test_a_timeline_becomes_absolute(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("'~/trace.json'", "trace.json"):
        done = composed("parallel=horovod", f"parallel.timeline={name}")
        assert done["parallel"]["timeline"] == str(tmp_path / "trace.json")


@pytest.mark.parametrize(
    ("gpus", "overrides"),
    [
        (0, ["parallel.compression=fp16"]),
        (0, ["parallel.gradient_predivide_factor=2"]),
        (0, ["parallel.gradient_predivide_factor=2", "parallel.num_groups=0"]),
        (0, ["parallel.op=sum", "parallel.num_groups=3"]),
        (0, [*ADASUM]),
        (0, [*ADASUM, "parallel.num_groups=auto", "launcher.nproc_per_node=1"]),
        (0, [*ADASUM, "launcher.hosts=[a:2,b:2]"]),
        (0, ["parallel.op=adasum", "launcher.controller=mpi"]),
        (0, [*ADASUM, "precision=bf16"]),
        (0, [*ADASUM, "precision=amp"]),
        (2, [*ADASUM, "precision=amp", "precision.dtype=bfloat16"]),
        (0, [*O2, "precision.dtype=float16"]),
        (2, [*O2]),
        (2, ["launcher.hosts=[a:4,b:4]"]),
    ],
)
def test_goes_together(machine, gpus, overrides):
    machine(gpus=gpus)
    assert composed("parallel=horovod", *overrides)["parallel"]["name"] == "horovod"


@pytest.mark.parametrize(
    ("gpus", "overrides", "message"),
    [
        (0, ["launcher.hosts=[a:2,b:4]"], r"^launcher\.hosts: a:2, b:4 is not allowed"),
        (0, ["launcher.hosts=[a:2]", "launcher.hostfile=x"], r"^launcher\.hostfile=x: launcher\.hosts is set too"),
        (0, ["launcher.hostfile=/nowhere/x"], r"^launcher\.hostfile=/nowhere/x: No such file .* Name a file\."),
        (0, ["launcher.hosts=[a:2]", "launcher.nproc_per_node=3"], r"^launcher\.nproc_per_node=3: .* Set it to auto\."),
        (0, ["launcher.hosts=[a:5]"], r"^data\.batch_size=96 .* 5 ranks x 1 micro-batches\. .*batch_size=95 or 100\."),
        (0, ["parallel.compression=bf16"], r"^parallel\.compression=bf16: Horovod has none and fp16 only\. Set"),
        (
            0,
            ["parallel.backward_passes_per_step=2"],
            r"_step=2 must equal trainer\.grad_accumulation, which is 1\. Set",
        ),
        (
            0,
            ["parallel.gradient_predivide_factor=2", "parallel.op=sum"],
            r"^parallel\.gradient_predivide_factor=2 works with parallel\.op=average and without groups only\. Set it",
        ),
        (
            0,
            ["parallel.gradient_predivide_factor=0.5", "parallel.num_groups=2"],
            r"^parallel\.gradient_predivide_factor=0\.5 .* or parallel\.op=average and parallel\.num_groups=0\.",
        ),
        (0, [*O2], r"^precision\.dtype=auto: .* bfloat16 here, .* Set precision\.dtype=float16, .*level=O1, or .*=ddp"),
        (2, [*O2, "precision.dtype=bfloat16"], r"^precision\.dtype=bfloat16: .* are bfloat16, which Horovod can't"),
        (2, [*O2, *ADASUM], r"^precision\.level=O2: parallel\.op=adasum .* Set precision\.level=O1 or parallel\.op="),
        (0, [*ADASUM, "launcher.nproc_per_node=3"], r"8, \.\.\. ranks, not 3\. Change launcher\.nproc_per_node=3\."),
        (
            0,
            [*ADASUM, "launcher.hosts=[a:2,b:2,c:2]"],
            r"^parallel\.op=adasum needs .* not 6\. Change launcher\.nproc_per_node=2 or the number of hosts\.",
        ),
        (
            0,
            ["parallel.op=adasum"],
            r"^parallel\.op=adasum needs MPI\. Set launcher\.controller=mpi or launcher=mpirun",
        ),
        (0, [*ADASUM, "parallel.num_groups=2"], r"^parallel\.num_groups=2: .* does not support groups\. Set it to 0\."),
        (0, [*ADASUM, "trainer.clip_norm=1"], r"^trainer\.clip_norm=1: parallel\.op=adasum can't clip\. Set it to inf"),
        (0, [*ADASUM, "trainer.on_nan=skip"], r"^trainer\.on_nan=skip: .* Set trainer\.on_nan=error\."),
        (
            2,
            [*ADASUM, "precision=amp"],
            r"^precision=amp scales fp16 gradients, .* Set precision=bf16, precision=fp32, or parallel\.op=average\.",
        ),
        (0, [*ADASUM, "precision=amp", "precision.dtype=float16"], r"^precision=amp scales fp16 gradients"),
        (
            0,
            ["trainer.channels_last=true"],
            r"^trainer\.channels_last=true: Horovod .* Set it to false, or parallel=ddp",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_is_refused(machine, gpus, overrides, message):
    machine(gpus=gpus)
    with pytest.raises(ConfigurationError, match=message) as caught:
        composed("parallel=horovod", *overrides)
    assert "\n" not in str(caught.value)


def test_without_cuda_it_trains_on_cpus_only(machine):
    machine(("gloo", "mpi"), gpus=2)
    with pytest.raises(Unavailable, match=r"^parallel=horovod: .* without CUDA.*--nccl`, or set trainer\.device=cpu"):
        composed("parallel=horovod")
    assert composed("parallel=horovod", "trainer.device=cpu")["trainer"]["device"] == "cpu"


@pytest.mark.usefixtures("apex")
def test_apex_scales_too(machine):
    machine(gpus=2)
    with pytest.raises(ConfigurationError, match=r"^precision=apex scales fp16 gradients"):
        composed("parallel=horovod", *ADASUM, "precision=apex")


@pytest.mark.parametrize(
    ("group", "option", "assumed", "text"),
    [
        ("parallel", "horovod", {"features": ("gloo", "mpi")}, "2 CPU ranks over Gloo"),
        ("parallel", "horovod", {"features": ("mpi",)}, "2 CPU ranks over MPI"),
        ("parallel", "horovod", {"gpus": 4}, "4 ranks over NCCL"),
        (
            "parallel",
            "horovod",
            {"features": ("gloo", "mpi"), "gpus": 4},
            f"on CPUs only, with trainer.device=cpu; `{BUILD} --mpi --nccl` builds it for the 4 GPUs",
        ),
        (
            "parallel",
            "horovod",
            {"features": ("gloo", "mpi", "cuda"), "gpus": 4},
            f"slower than it could be: 4 ranks without NCCL; `{BUILD} --mpi --nccl` adds it",
        ),
        ("launcher", "horovodrun", {"features": ("gloo",)}, "built with Gloo for torch 9.9.0"),
        ("launcher", "horovodrun", {"features": ("gloo", "mpi")}, "built with Gloo and MPI for torch 9.9.0"),
        ("launcher", "horovodrun", {}, "built with Gloo, MPI and NCCL for torch 9.9.0"),
        ("launcher", "mpirun", {}, "Open MPI 4.1.4"),
        (
            "launcher",
            "mpirun",
            {"features": ("gloo",), "open_mpi": "5.0.7"},
            "Open MPI 5.0.7; without a Horovod built with MPI, for parallel=ddp only",
        ),
        ("launcher", "torchrun", {}, ""),
    ],
)
def test_notes_what_an_option_comes_to_here(machine, group, option, assumed, text):
    machine(**assumed)
    assert note(group, option) == text
