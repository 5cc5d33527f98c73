"""The parent starts without torch: the difference between a third of a second and several."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from runner.config import CONF, options, read_option
from tests.conftest import ROOT, RUN
from tests.data.conftest import save_photos

RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
BANNED = RUFF["flake8-tidy-imports"]["banned-module-level-imports"]
TORCH_FREE = [f"launchers.{path.stem}" for path in sorted((ROOT / "launchers").glob("*.py"))]
TORCH_FREE += [
    f"runner.{name}"
    for name in ("errors", "rules", "config", "compatibility", "command_line", "run_folder", "heartbeat", "hardware")
    + ("provenance", "result", "doctor", "parent_death", "instantiate", "display", "worker", "__main__")
    + ("apex_compatibility", "apex_installation", "horovod_compatibility", "horovod_installation", "horovod_build")
    + ("install_horovod", "place", "hosts", "freeze", "ledger", "report", "report.command")
]
DATA = {yaml.safe_load(path.read_text())["_target_"].rpartition(".")[0] for path in (CONF / "data").iterdir()}
TORCH_FREE += sorted(DATA - {""})  # the parent asks them whether their files are there


def imported(*command: str, cwd: Path) -> tuple[int, set[str]]:
    """Exit code of a Python command, and the modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done.returncode, {line.rpartition("|")[2].strip() for line in lines}


def test_importing_a_torch_free_module_imports_no_torch():
    code = (
        "import importlib, sys\n"
        f"for name in {TORCH_FREE!r}:\n"
        "    importlib.import_module(name)\n"
        f"    assert not {{*{BANNED!r}}} & set(sys.modules), name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_data_option_says_which_samples_without_torch(tmp_path):
    photos = str(save_photos(tmp_path))
    sections = [{**read_option("data", name), "root": photos} for name in options("data") if name != "custom"]
    code = (
        "import inspect, sys\n"
        "from runner.fingerprint import option_class\n"
        f"for section in {sections!r}:\n"
        "    kind = option_class(section['_target_'])\n"
        "    data = kind(**{key: section[key] for key in inspect.signature(kind).parameters})\n"
        "    assert data.split(train=True) and data.split(train=False)\n"
        f"    assert not {{*{BANNED!r}}} & set(sys.modules), section['name']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ([str(RUN), "--cfg", "job"], 0),
        ([str(RUN), "--help"], 0),
        ([str(RUN), "parallel=ddp", "data.batch_size=3"], 2),
        ([str(RUN), "parallel=dpp"], 2),
        ([str(RUN), "data=mnist", "data.download=false", "data.root=/nowhere"], 2),
        (["-m", "runner", "doctor"], 0),
        (["-m", "runner", "resume", "/nowhere"], 2),
    ],
    ids=lambda value: " ".join(map(os.path.basename, value)) if isinstance(value, list) else str(value),
)
def test_what_starts_no_rank_imports_no_torch(tmp_path, command, code):
    returned, modules = imported(*command, cwd=tmp_path)
    assert returned == code
    assert "runner.config" in modules
    assert modules & set(BANNED) == set()
