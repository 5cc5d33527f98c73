"""Which Apex is installed, told by folders as the installers leave them."""

import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.runner.commands.doctor.examine import note
from manyheads.runner.config.lookup import unavailable as unavailable_option
from manyheads.runner.machine import apex_installation, hardware
from manyheads.runner.machine.apex_installation import NATIVE, PARTS, has_kernels, unavailable
from tests.conftest import ROOT
from tests.in_process import config

BUILD = "git clone --branch 25.05 https://github.com/NVIDIA/apex"
UNINSTALL = "`pip uninstall apex`"
FUSED = ("apex/__init__.py", "apex/multi_tensor_apply/__init__.py", "apex/optimizers/__init__.py")
KERNELS = ("amp_C.py",)
SITES = {
    "none": (),
    "a clone": ("apex/setup.py", "apex/apex/__init__.py"),
    "PyPI's": ("apex/__init__.py", "apex/models.py", "apex/lib/__init__.py", "apex-0.9.10.dev0.dist-info/METADATA"),
    "25.07": (*FUSED, *KERNELS),
    "25.07 without kernels": FUSED,
    "25.05 without kernels": (*FUSED, "apex/amp/__init__.py", "apex/parallel/__init__.py"),
    "25.05": (*FUSED, *KERNELS, "apex/amp/__init__.py", "apex/parallel/__init__.py"),
}
METADATA = "Metadata-Version: 2.1\nName: apex\nVersion: 0.9.10.dev0\n"
MISSING = "NVIDIA Apex is not installed"
WRONG = "the installed apex 0.9.10.dev0 is the web toolkit of that name from PyPI"
NO_KERNELS = "was built without its CUDA extensions"
# Of each site: what is said of amp, parallel and optimizers, and of all of them when they are unavailable.
SAYS = {
    "none": (MISSING, MISSING, MISSING),
    "a clone": (MISSING, MISSING, MISSING),
    "PyPI's": (WRONG, WRONG, WRONG),
    "25.07": ("has no apex.amp: tag 25.05 was the last", "has no apex.parallel: tag 25.05 was the last", None),
    "25.07 without kernels": ("has no apex.amp", "has no apex.parallel", NO_KERNELS),
    "25.05 without kernels": (None, None, NO_KERNELS),
    "25.05": (None, None, None),
}
EACH = [(site, part, text) for site, texts in SAYS.items() for part, text in zip(PARTS, texts, strict=True)]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with such an Apex in its site folder, and so many GPUs."""

    def pretend(site: str, *, gpus: int) -> Path:
        for name in SITES[site]:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(METADATA if path.name == "METADATA" else "raise ImportError('only looked for')")
        others = [entry for entry in sys.path if not (Path(entry) / "apex").is_dir()]
        monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["Some GPU"] * gpus)
        return tmp_path

    return pretend


@pytest.mark.parametrize(("site", "part", "text"), EACH)
def test_what_is_lacking_is_said_with_what_to_do(machine, site, part, text):
    machine(site, gpus=1)
    reason = unavailable(part)
    if text is None:
        assert reason is None
        return
    assert text in reason
    assert NATIVE[part] in reason
    assert BUILD in reason
    assert (UNINSTALL in reason) is (text is not MISSING)
    assert hardware.NO_GPU not in reason


@pytest.mark.parametrize(("site", "part", "text"), EACH)
def test_without_a_gpu_that_is_said_as_well(machine, site, part, text):
    machine(site, gpus=0)
    reason = unavailable(part)
    assert hardware.NO_GPU in reason
    assert NATIVE[part] in reason
    assert text is None or text in reason
    assert (BUILD in reason) is (text is not None)


def test_the_five_cases_are_told_apart(machine):
    reasons = {}
    for site in ("none", "PyPI's", "25.07", "25.05 without kernels", "25.05"):
        folder = machine(site, gpus=site != "25.05")
        reasons[site] = unavailable("amp") or unavailable("optimizers")
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    assert len({reason.partition(". ")[0] for reason in reasons.values()}) == 5


@pytest.mark.parametrize("site", SITES)
def test_nothing_is_imported_for_it(machine, site):
    """Each of those modules would raise."""
    machine(site, gpus=1)
    assert has_kernels() is ("amp_C.py" in SITES[site])
    assert [unavailable(part) for part in PARTS].count(None) == SAYS[site].count(None)


@pytest.mark.parametrize(
    ("site", "text"),
    [
        ("none", None),
        ("a clone", None),
        ("PyPI's", None),
        ("25.07", "unknown with optimizers"),
        ("25.07 without kernels", "unknown with optimizers, without its CUDA extensions"),
        ("25.05", "unknown with amp, parallel, optimizers"),
    ],
)
def test_what_there_is_is_described(machine, site, text):
    machine(site, gpus=0)
    assert apex_installation.description() == text


def test_its_version_is_named(machine):
    info = machine("25.05", gpus=0) / "apex-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: apex\nVersion: 0.1\n")
    assert apex_installation.description() == "0.1 with amp, parallel, optimizers"


@pytest.mark.parametrize(
    ("group", "option", "part"),
    [
        ("precision", "apex", "amp"),
        ("parallel", "apex", "parallel"),
        ("optimizer", "fused_sgd", "optimizers"),
        ("optimizer", "fused_adam", "optimizers"),
        ("optimizer", "fused_lamb", "optimizers"),
        ("optimizer", "fused_novograd", "optimizers"),
        ("precision", "amp", None),
        ("parallel", "ddp", None),
        ("optimizer", "adamw", None),
        ("optimizer", "custom", None),
    ],
)
def test_which_options_need_which_part(machine, group, option, part):
    machine("none", gpus=1)
    expected = unavailable(part) if part else None
    assert unavailable_option(group, option) == expected


@pytest.mark.parametrize(("site", "text"), [("25.05", ""), ("25.05 without kernels", "slower than it could be: Apex")])
def test_the_doctor_notes_missing_kernels(machine, site, text):
    machine(site, gpus=1)
    assert note("precision", "apex").startswith(text)
    assert note("precision", "apex") or not text


def test_all_of_it_is_there_with_the_stand_in(apex):
    assert [apex_installation.unavailable(part) for part in PARTS] == [None] * 3
    for option in ("precision=apex", "parallel=apex", "optimizer=fused_adam"):
        config("data=synthetic", option)


def test_the_command_refuses_before_it_imports_torch(tmp_path):
    """As on a machine without Apex, whatever this one has."""
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").write_text("")
    command = [sys.executable, "-X", "importtime", str(ROOT / "run.py"), "precision=apex"]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.rstrip().endswith("| torch")] == []
    lines = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert len(lines) == 1
    assert lines[0].startswith("error: precision=apex: the installed apex is the web toolkit")
