import pytest

from manyheads.runner.commands.doctor import LISTED, describe_machine, examine, list_models, note
from manyheads.runner.config.complete import unavailable
from manyheads.runner.config.lookup import options
from manyheads.runner.machine import apex as apex_installation
from manyheads.runner.machine import hardware
from manyheads.runner.parallel.horovod import installation as horovod_installation

EVERY_OPTION = [(group, option) for group in LISTED for option in options(group)]


@pytest.fixture
def machine(monkeypatch):
    """Describe a machine with so many GPUs, such a driver and such a torch."""

    def pretend(*, gpus: int, driver: str = "", cuda: str | None = "13.0") -> None:
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["Some GPU"] * gpus)
        monkeypatch.setattr(hardware, "driver_version", lambda: driver)
        monkeypatch.setattr(hardware, "torch_cuda_version", lambda: cuda)

    return pretend


@pytest.fixture
def rows(capsys, monkeypatch):
    """What doctor prints of each option: the verdict and the note."""

    def run() -> dict[str, tuple[str, str]]:
        monkeypatch.setenv("COLUMNS", "1000")
        examine()
        lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.count("│") == 4]
        return {option.strip(): (verdict.strip(), text.strip()) for option, verdict, text in lines}

    return run


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_every_option_is_there_with_its_verdict(machine, rows, gpus):
    machine(gpus=gpus)
    expected = {
        f"{group}={option}": ("no", reason) if (reason := unavailable(group, option)) else ("yes", note(group, option))
        for group, option in EVERY_OPTION
    }
    shown = rows()
    for name, (verdict, text) in shown.items():
        if text.startswith("as "):
            shown[name] = verdict, shown[text.removeprefix("as ")][1]
    assert shown == expected


def test_a_reason_is_told_once(machine, rows):
    machine(gpus=0)
    texts = [text for verdict, text in rows().values() if verdict == "no" and not text.startswith("as ")]
    assert len(set(texts)) == len(texts) > 1


def test_what_cannot_run_names_what_to_use_instead(machine):
    machine(gpus=0)
    reasons = [reason for group, option in EVERY_OPTION if (reason := unavailable(group, option))]
    assert reasons
    assert all("Use " in reason or "install" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("pretended", "text"),
    [
        ({"gpus": 2, "driver": "580"}, "Some GPU, Some GPU"),
        ({"gpus": 0}, "none: there is no NVIDIA driver"),
        ({"gpus": 0, "driver": "580"}, "none that torch can use: CUDA_VISIBLE_DEVICES hides them"),
        ({"gpus": 0, "driver": "580", "cuda": None}, "none that torch can use: torch is a CPU build"),
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
        (None, "Horovod is not installed", (), "not installed: python -m runner install-horovod"),
        ("9.8", "it was built for another torch", ("gloo",), "9.8, which can't be used; see parallel=horovod"),
        ("9.8", None, ("gloo",), "9.8, built with Gloo"),
        ("9.8", None, ("gloo", "mpi"), "9.8, built with Gloo and MPI"),
    ],
)
def test_says_which_horovod_there_is(machine, monkeypatch, version, reason, features, text):
    machine(gpus=0)
    monkeypatch.setattr(horovod_installation, "version", lambda: version)
    monkeypatch.setattr(horovod_installation, "unavailable", lambda: reason)
    monkeypatch.setattr(horovod_installation, "has", lambda feature: feature in features)
    assert describe_machine()["Horovod"] == text


@pytest.mark.parametrize(("found", "text"), [(None, "not installed"), ("0.1 with amp", "0.1 with amp")])
def test_says_which_apex_there_is(machine, monkeypatch, found, text):
    machine(gpus=0)
    monkeypatch.setattr(apex_installation, "description", lambda: found)
    assert describe_machine()["Apex"] == text


def test_notes_what_horovod_comes_to_here(machine, monkeypatch):
    """Not what is said of the other strategies with several ranks."""
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
        ("parallel", "dp", 1, "one replica only"),
        ("parallel", "dp", 4, "4 replicas"),
        ("parallel", "single", 0, "one rank on the CPU"),
        ("precision", "amp", 0, "bfloat16 on CPUs"),
        ("precision", "amp", 1, "float16 with gradient scaler"),
    ],
)
def test_notes_what_an_option_comes_to_here(machine, group, option, gpus, text):
    machine(gpus=gpus)
    assert note(group, option).startswith(text)


def test_lists_the_models_of_torchvision(capsys):
    list_models()
    names = capsys.readouterr().out.splitlines()
    assert {"resnet50", "vit_b_16", "convnext_tiny"} <= set(names)
    assert set(options("model")) - {"small_cnn", "custom", "torchvision"} <= set(names)
