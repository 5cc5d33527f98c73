import re
import shutil

import pytest

from manyheads.runner.commands.doctor import model_names
from manyheads.runner.commands.doctor.examine import LISTED, describe_machine, examine, explain, note
from manyheads.runner.config.lookup import options, unavailable
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import Board

EVERY_OPTION = [(group, option) for group in LISTED for option in options(group)]


@pytest.fixture
def machine(monkeypatch):
    """Describe a machine with so many GPUs, such a driver and such a torch."""

    def pretend(*, gpus: int, driver: str = "", cuda: str | None = "13.0") -> None:
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["Some GPU"] * gpus)
        monkeypatch.setattr(hardware, "_driver", lambda: (driver, [Board("Some GPU", "GPU-1")] if driver else []))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
        monkeypatch.setattr(hardware, "torch_cuda_version", lambda: cuda)

    return pretend


@pytest.fixture
def told(capsys):
    """What doctor says of all options of a group."""

    def run(group: str) -> list[str]:
        explain([group]).show()
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_every_option_is_in_the_table(machine, capsys, monkeypatch, gpus):
    monkeypatch.setenv("COLUMNS", "160")
    machine(gpus=gpus)
    examine().show()
    out = capsys.readouterr().out
    rows = {
        cells[0]: cells[1:]
        for line in out.splitlines()
        if len(cells := [c.strip() for c in line.split("│")[1:-1]]) == 3
    }
    for group in LISTED:
        runs = [option for option in options(group) if not unavailable(group, option)]
        lacks = [option for option in options(group) if unavailable(group, option)]
        assert rows[group] == [", ".join(runs), ", ".join(lacks)]
    assert ("Why, and how to get it: python -m runner doctor parallel=" in out) is bool(unavailable("parallel", "apex"))


@pytest.mark.parametrize("group", LISTED)
@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_of_a_group_all_options_are_explained(machine, told, gpus, group):
    machine(gpus=gpus)
    lines = told(group)
    for line, option in zip(lines, options(group), strict=True):
        if reason := unavailable(group, option):
            assert line in {
                f"{group}={option} does not run here: {reason}.",
                f"{group}={option} does not run here: as {first(lines)}.",
            }
        else:
            text = note(group, option)
            assert line == f"{group}={option} runs here{f': {text}' if text else ''}."


def first(lines: list[str]) -> str:
    """The first option that does not run."""
    return next(line.split()[0] for line in lines if "does not run" in line)


def test_a_reason_is_told_once(machine, told):
    machine(gpus=0)
    lines = told("optimizer")
    short = [line for line in lines if line.endswith(f"does not run here: as {first(lines)}.")]
    assert len(short) == sum("does not run" in line for line in lines) - 1 > 0


def test_programs_get_each_reason_once(machine):
    machine(gpus=0)
    found = examine().options
    reasons = [each.reason for each in found if each.reason and not each.reason.startswith("as ")]
    assert len({*reasons}) == len(reasons)
    known = {each.words: each.reason for each in found}
    others = [each for each in found if each.reason.startswith("as ")]
    assert others
    assert all(known[each.reason.removeprefix("as ")] == unavailable(each.group, each.name) for each in others)


@pytest.mark.parametrize("words", ["apex", "parallel=apex"])
def test_an_option_is_explained_by_its_name(machine, capsys, words):
    machine(gpus=0)
    explain([words]).show()
    assert "parallel=apex does not run here: NVIDIA Apex is not installed" in capsys.readouterr().out


def test_what_is_no_option_is_refused():
    with pytest.raises(ConfigurationError, match=r"aepx is not an option\. Did you mean apex"):
        explain(["aepx"])


def test_what_cannot_run_names_what_to_use_instead(machine):
    machine(gpus=0)
    reasons = [reason for group, option in EVERY_OPTION if (reason := unavailable(group, option))]
    assert reasons
    assert all(re.search(r"\b[Uu]se |install", reason) for reason in reasons)


@pytest.mark.parametrize(
    ("pretended", "text"),
    [
        ({"gpus": 2, "driver": "580"}, "Some GPU, Some GPU"),
        ({"gpus": 0}, "none: there is no NVIDIA driver"),
        (
            {"gpus": 0, "driver": "580"},
            "none usable by torch: NVIDIA's driver 580 has Some GPU, but CUDA_VISIBLE_DEVICES= hides it",
        ),
        (
            {"gpus": 0, "driver": "580", "cuda": None},
            "none usable by torch: NVIDIA's driver 580 has Some GPU, but the installed torch is a CPU build",
        ),
    ],
)
def test_says_why_there_is_no_gpu(machine, pretended, text):
    machine(**pretended)
    assert describe_machine()["GPUs"].startswith(text)


@pytest.mark.parametrize(("cuda", "text"), [("13.0", "built for CUDA 13.0"), (None, "built for CPU")])
def test_says_which_torch_there_is(machine, cuda, text):
    machine(gpus=0, cuda=cuda)
    assert describe_machine()["torch"].endswith(text)


@pytest.mark.parametrize(
    ("version", "reason", "features", "text"),
    [
        (None, "Horovod is not installed", (), "not installed: {}"),
        ("9.8", "it was built for another torch", ("gloo",), "9.8, which is unusable here; see parallel=horovod"),
        ("9.8", None, ("gloo",), "9.8, built with Gloo"),
        ("9.8", None, ("gloo", "mpi"), "9.8, built with Gloo and MPI"),
    ],
)
def test_says_which_horovod_there_is(machine, monkeypatch, version, reason, features, text):
    from manyheads.runner.parallel import horovod_installation

    machine(gpus=0)
    monkeypatch.setattr(horovod_installation, "version", lambda: version)
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: reason)
    monkeypatch.setattr(horovod_installation, "has", lambda feature: feature in features)
    assert describe_machine()["Horovod"] == text.format(horovod_installation.BUILD)


@pytest.mark.parametrize(("found", "text"), [(None, "not installed"), ("0.1 with amp", "0.1 with amp")])
def test_says_which_apex_there_is(machine, monkeypatch, found, text):
    from manyheads.runner.machine import apex_installation

    machine(gpus=0)
    monkeypatch.setattr(apex_installation, "description", lambda: found)
    assert describe_machine()["Apex"] == text


def test_notes_what_horovod_comes_to_here(machine, monkeypatch):
    """Not what is said of the other strategies with several ranks."""
    from manyheads.runner.parallel import horovod_installation

    machine(gpus=0)
    monkeypatch.setattr(horovod_installation, "has", lambda feature: feature == "gloo")
    monkeypatch.setattr(horovod_installation, "built_for", lambda: "9.9.0")
    monkeypatch.setattr(horovod_installation, "open_mpi", lambda: "4.1.4")
    assert note("parallel", "horovod") == "2 CPU ranks over Gloo"
    assert note("launcher", "horovodrun") == "built with Gloo for torch 9.9.0"
    assert note("launcher", "mpirun").startswith("Open MPI 4.1.4")


@pytest.mark.parametrize(
    ("group", "option", "gpus", "text"),
    [
        ("parallel", "ddp", 0, "2 CPU ranks over gloo"),
        ("parallel", "ddp", 4, "4 ranks over nccl"),
        ("parallel", "dp", 1, "a single replica"),
        ("parallel", "dp", 4, "4 replicas"),
        ("parallel", "single", 0, "one rank on the CPU"),
        ("precision", "amp", 0, "bfloat16 on CPUs"),
        ("precision", "amp", 1, "float16 with gradient scaler"),
    ],
)
def test_notes_what_an_option_comes_to_here(machine, group, option, gpus, text):
    machine(gpus=gpus)
    assert note(group, option).startswith(text)


@pytest.mark.parametrize(
    ("total", "said"), [(512, "512 bytes"), (64 * 2**20, "67.1 MB"), (65536, "65.5 kB"), (15 * 10**8, "1.5 GB")]
)
def test_says_how_much_shared_memory_there_is(monkeypatch, total, said):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(total, total, 0))
    assert describe_machine()["shared memory"] == said


def test_says_if_there_is_no_shared_memory(monkeypatch):
    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(shutil, "disk_usage", missing)
    assert describe_machine()["shared memory"] == "unknown"


def test_lists_the_models_of_torchvision(capsys):
    model_names().show()
    names = capsys.readouterr().out.splitlines()
    assert {"resnet50", "vit_b_16", "convnext_tiny"} <= set(names)
    others = {"small_cnn", "mlp", "gpt", "airbench", "mnist1d", "custom", "torchvision", "timm"}
    assert set(options("model")) - others <= set(names)
