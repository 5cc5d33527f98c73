"""Features that can be deleted with their configs: everything else works without them, and nothing refers to them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, ROOT, Done
from tests.option.source import imports

APEX = (
    *(f"{group}/apex.py" for group in ("parallel", "parallel/rank", "precision", "precision/rank", "optimizer")),
    "machine/apex_installation.py",
)
SATELLITES = {  # by name, what is deleted
    "ray": ["launchers/ray", "conf/launcher/ray.yaml"],
    "slurm": ["launchers/slurm", "conf/launcher/slurm.yaml"],
    "replicated": [
        *("launchers/torchft", "conf/launcher/torchft.yaml", "conf/parallel/replicated.yaml"),
        *("runner/parallel/replicated.py", "runner/parallel/rank/replicated"),
    ],
    **{name: [f"runner/logger/{name}.py", f"conf/logger/{name}.yaml"] for name in ("wandb", "trackio")},
    "mlflow": [*(f"runner/logger/{name}.py" for name in ("mlflow", "mlflow_store")), "conf/logger/mlflow.yaml"],
    "manifest": ["runner/commands/manifest"],
    "record": ["runner/commands/record"],
    "apex": [
        *(f"runner/{path}" for path in APEX),
        *("conf/parallel/apex.yaml", "conf/precision/apex.yaml", "conf/tuned/digits_fused_sgd.yaml"),
        *(f"conf/optimizer/fused_{name}.yaml" for name in ("adam", "lamb", "novograd", "sgd")),
    ],
    "install-horovod": ["runner/commands/install_horovod"],
}


def test_all_paths_exist():
    assert [path for paths in SATELLITES.values() for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", SATELLITES)
def test_nothing_else_imports_it(name):
    own = tuple(f"manyheads.{path.removesuffix('.py').replace('/', '.')}" for path in SATELLITES[name])
    found = {
        f"{module} imports {imported}"
        for module, imported in imports()
        if _is_below(imported, own) and not _is_below(module, own)
    }
    assert found == set()


def _is_below(module: str, rooms: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{room}.") for room in rooms)


@pytest.mark.processes
@pytest.mark.parametrize(
    "names",
    [pytest.param(list(SATELLITES), id="all"), *(pytest.param([n], id=n, marks=pytest.mark.tail) for n in SATELLITES)],
)
def test_a_tree_without_it_composes_trains_sweeps_and_reports(names, tmp_path):
    root = tmp_path / "tree"
    for folder in ("runner", "launchers", "conf", ".names"):
        shutil.copytree(ROOT / folder, root / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "run.py", root)
    for path in (root / path for name in names for path in SATELLITES[name]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> Done:
        done = subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    composed = run("run.py", "--cfg", "job").out
    assert "parallel:\n  _target_: manyheads.runner.parallel.rank.single" in composed
    doctor = run("-m", "runner", "doctor").out
    assert "What it can run" in doctor
    sweep = Path("outputs/sweep")
    run("run.py", "-m", *FAST, "parallel=single,ddp", "launcher.nproc_per_node=1", f"hydra.sweep.dir={sweep}")
    assert [RunFolder(root / sweep / number).read_result()["status"] for number in "01"] == ["completed"] * 2
    assert "2 of 2 jobs completed" in run("-m", "runner", "report", str(sweep)).out
