"""Built as it is published, and installed in an environment of its own: complete, and works from any folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from manyheads import __version__
from manyheads.runner.commands import names
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.config.config_schema import schema_for
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, ROOT, Done
from tests.tail import tail
from tests.test_publishing import steps

pytestmark = [pytest.mark.ci, pytest.mark.processes]
NET = """
import os, time, torch

class Net(torch.nn.Module):
    def __init__(self, num_classes, width):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, num_classes)

    def forward(self, images):
        time.sleep(0.2 if "SLOW" in os.environ else 0)
        return self.layer(images.flatten(1))
"""
DATA = ("data=synthetic", "data.image_size=8", "data.train_samples=64", "data.val_samples=32")
OWN = (
    "model=custom",
    "model._target_=runner.Net",
    "+model.width=3",
    *DATA,
    *(each for each in FAST if "width" not in each),
)


def tracked() -> list[str]:
    """The paths of git's files, and of those that it is about to have."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    return sorted(path for path in os.fsdecode(found).split("\0") if path and os.path.lexists(ROOT / path))


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """Built without a network from the files that git knows, and from nothing that lies about beside them."""
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("built")
    for path in tracked():
        copy = sources / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_symlink():
            copy.symlink_to(os.readlink(ROOT / path))
        else:
            shutil.copy(ROOT / path, copy)
    command = [sources / ".ci" / "dist", built, "--offline", "--no-build-isolation", "--python", sys.executable]
    done = subprocess.run(command, env=with_tools(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


def with_tools() -> dict[str, str]:
    """The environment, with the programs of the Python that runs the tests, such as uv, but without the checkout."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (found,) = dist.glob("manyheads-*.whl")
    return found


class Installed:
    """A fresh environment that has the wheel, and sees the packages of the one that the tests run in."""

    def __init__(self, folder: Path, wheel: Path):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python, self.script = folder / "bin" / "python", folder / "bin" / "manyheads"
        scheme = {"base": str(folder), "platbase": str(folder)}
        self.packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
        install = ["-m", "pip", "--python", str(self.python), "install", "--no-deps", "--no-index", str(wheel)]
        # Without the path on which the checkout is: pip would call that one installed.
        done = subprocess.run([sys.executable, *install], env=with_tools(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        here = [path for path in sys.path if {"site-packages", "dist-packages"} & {*Path(path).parts}]
        (self.packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in here))

    def __call__(self, *words: str, cwd: Path, timeout: float = 120) -> Done:
        """``manyheads <words>``; Python if the first one is a flag of its."""
        command = [str(self.python), *words] if words[0] == "-c" else [str(self.script), *words]
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout)
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel) -> Installed:
    return Installed(tmp_path_factory.mktemp("environment") / "venv", wheel)


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """An empty folder, far from the checkout."""
    return tmp_path_factory.mktemp("here")


@pytest.fixture(scope="module")
def trained(installed, here) -> RunFolder:
    done = installed("train", *FAST, cwd=here)
    assert done.code == 0, done.err
    (result,) = here.glob("outputs/*/*/result.json")
    return RunFolder(result.parent)


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with a package of the user's own, which has the name of one of this project's."""
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "__init__.py").write_text(NET)
    return tmp_path


def published() -> set[str]:
    """What belongs into a release of the files that git knows, by the names that they have when installed."""
    plugins = "launchers/hydra_plugins/"
    names = {
        f"hydra_plugins/{path.removeprefix(plugins)}" if path.startswith(plugins) else f"manyheads/{path}"
        for path in tracked()
        if path.startswith(("conf/", "launchers/", "runner/"))
    }
    return names | {f"manyheads/{name}" for name in ("__init__.py", "__main__.py", "py.typed")}


def test_it_holds_all_that_git_knows_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == published()
    assert {"manyheads/py.typed", "manyheads/runner/commands/skill/SKILL.md"} <= names


def test_so_does_the_source_distribution_which_needs_no_links(dist):
    (file,) = dist.glob("manyheads-*.tar.gz")
    with tarfile.open(file) as archive:
        members = archive.getmembers()
    assert all(member.isfile() or member.isdir() for member in members)
    names = {member.name.partition("/")[2] for member in members if member.isfile()}
    code = {name.removeprefix(".names/") for name in names if name.startswith(".names/") and ".egg-info/" not in name}
    assert code == published()
    rest = {name for name in names if not name.startswith(".names/")}
    assert rest == {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}


@pytest.mark.needs("twine")
def test_an_index_would_take_both(dist):
    command = [sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir()]
    done = subprocess.run(command, env=with_tools(), capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


@pytest.mark.needs("uv")
def test_uvx_runs_it_from_an_index(wheel, here, tmp_path):
    (tmp_path / "manyheads").mkdir()
    shutil.copy(wheel, tmp_path / "manyheads")
    (tmp_path / "manyheads" / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    # What the wheel needs is taken from where this machine's packages come from, in the versions that are already here.
    command = ["uvx", "--python", sys.executable, "--constraints", ROOT / ".ci" / "versions.txt"]
    command += ["--index", tmp_path.as_uri(), "--refresh-package", "manyheads", "manyheads", "--version"]
    done = subprocess.run(command, cwd=here, env=with_tools(), capture_output=True, text=True, timeout=250)
    assert done.stdout == f"manyheads {__version__}\n", done.stderr


def test_it_is_the_wheels_code_that_is_imported(installed, here):
    done = installed("-c", "import manyheads, sys; print(manyheads.__file__, 'torch' in sys.modules)", cwd=here)
    assert done.out.split() == [str(installed.packages / "manyheads" / "__init__.py"), "False"], done.err
    assert installed("--version", cwd=here).out == f"manyheads {__version__}\n"


def test_training(trained, here):
    recorded = yaml.safe_load(trained.provenance.read_text())
    assert recorded["command"] == f"manyheads train {' '.join(FAST)}"
    assert recorded["commit"] is None
    assert trained.read_result()["status"] == "completed"
    assert (trained.log.name, trained.log.exists()) == ("run.log", True)
    assert [path.name for path in here.iterdir()] == ["outputs"]


@pytest.mark.tail
def test_what_is_tried_before_it_is_published(installed, tmp_path):
    (line,) = [step for step in steps("test") if step.get("name", "").startswith("Install and train")]
    words = [line.split() for line in line["run"].splitlines() if line.startswith("manyheads ")]
    assert len(words) == 4
    for one in words:
        done = installed(*one[1:], cwd=tmp_path)
        assert done.code == 0, done.err


@pytest.mark.tail
def test_a_sweep_and_its_report(installed, here):
    done = installed("train", "-m", *FAST, "seed=1,2", "parallel=ddp", "hydra.sweep.dir=sweep", cwd=here)
    assert done.code == 0, done.err
    assert {entry.state for entry in Ledger(here / "sweep").entries()} == {"completed"}
    (here / "sweep" / "comparison.html").unlink()
    done = installed("report", "sweep", cwd=here)
    assert done.code == 0, done.err
    assert "<script" in (here / "sweep" / "comparison.html").read_text()


@pytest.mark.tail
def test_an_interrupted_run_names_the_command_that_resumes_it(installed, project):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {"SLOW": "1"}
    command = [
        installed.script,
        "train",
        *(each for each in OWN if "max_steps" not in each),
        "trainer.max_steps=20",
        "hydra.run.dir='my run'",
    ]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = subprocess.Popen(command, cwd=project, env=variables, text=True, **piped)
    with running:
        next(line for line in running.stdout if line.startswith("epoch 1/"))
        running.terminate()
        rest = running.stdout.read()
    assert running.returncode == 143
    assert "manyheads resume 'my run'" in rest
    done = installed("resume", "my run", cwd=project)
    assert done.code == 0, done.err
    assert RunFolder(project / "my run").read_result()["steps"] == 20


@pytest.mark.tail
def test_reproducing(installed, here, trained):
    done = installed("reproduce", str(trained.path), "hydra.run.dir=again", cwd=here)
    assert done.code == 0, done.err
    assert "identical" in done.out
    assert "nothing differs" in done.out, done.out


@pytest.mark.tail
def test_parity(installed, here):
    done = installed("parity", *FAST[1:], "parallel=ddp", "--steps", "1", cwd=here)
    assert done.code == 0, done.err


@pytest.mark.tail
def test_doctor(installed, here):
    assert "parallel=ddp runs here" in installed("doctor", "parallel=ddp", cwd=here).out


def test_a_users_own_package_called_runner(installed, project):
    done = installed("train", *OWN, "parallel=ddp", "hydra.run.dir=run", cwd=project)
    assert done.code == 0, done.err
    assert RunFolder(project / "run").read_result()["status"] == "completed"


def test_what_is_wrong_is_said_in_the_words_that_were_typed(installed, here):
    done = installed("train", "trainer.epoch=1", cwd=here)
    assert done.code == 2
    assert "`manyheads train --cfg job` lists them all" in done.err
    assert "usage: manyheads" in installed("trian", cwd=here).err


@pytest.mark.parametrize("what", ["list", tail("config"), tail("parallel=fsdp")])
def test_its_schemas_are_those_of_the_checkout(installed, here, what):
    done = installed("schema", what, cwd=here)
    assert json.loads(done.out) == (schema_of_command(what) if what in names() else schema_for(what)), done.err


def completed(installed, line: str, cwd: Path) -> list[str]:
    """What a real bash offers for the last word, once Hydra's script is installed as the README says."""
    script = f"""
        PATH={installed.script.parent}:$PATH
        eval "$(manyheads -sc install=bash)"
        COMP_LINE={line!r} COMP_POINT={len(line)}; COMP_WORDS=({line}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        hydra_bash_completion
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("manyheads train parallel=d", ["parallel=ddp", "parallel=dp"]),
        tail("manyheads res", ["resume"]),
        tail("manyheads train seed=1 trainer.epo", ["trainer.epochs="]),
    ],
)
def test_completion_in_a_real_shell(installed, here, line, offered):
    assert sorted(completed(installed, line, here)) == offered


@pytest.mark.tail
def test_completion_of_ones_own_conf(installed, tmp_path):
    assert installed("new", "shapes", cwd=tmp_path).code == 0
    assert completed(installed, "manyheads train model=ne", tmp_path / "shapes") == ["model=net"]
