"""A folder that somebody sent, as the working directory: Python itself must import nothing from it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.launchers.environment import environment, folders
from manyheads.launchers.spawn import Spawn
from manyheads.runner.option.locate import find_in_own_folders, locate
from tests.conftest import FAST, ROOT, RUN, execute
from tests.tail import tail
from tests.trust.foreign import CUSTOM, OWN, assert_refused

pytestmark = pytest.mark.ci

EVIL = "import pathlib, os; pathlib.Path(os.path.dirname(__file__), 'mark').touch()\n"
NAMES = (
    *("sitecustomize", "usercustomize", "torch", "torchvision", "numpy", "yaml", "apex", "horovod", "argparse"),
    *("manyheads", "runner", "launchers", "multiprocessing", "hydra_plugins", "tests", "conf"),
)


@pytest.fixture
def hostile(here, monkeypatch):
    """A working directory with a module for every name that somebody might import."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / ".names"))
    for name in NAMES:
        (here / name).mkdir()
        (here / name / "__init__.py").write_text(EVIL)
    return here


@pytest.mark.processes
@pytest.mark.parametrize(
    "launcher",
    [
        "launcher=spawn launcher.warm=true",
        tail("launcher=spawn launcher.warm=false"),
        tail("launcher=torchrun"),
        tail("launcher=inline"),
    ],
)
def test_a_run(run_command, hostile, launcher):
    two = () if launcher == "launcher=inline" else ("parallel=ddp", "launcher.nproc_per_node=2")
    done = run_command(*FAST, *two, *launcher.split(), "hydra.run.dir=out")
    assert done.code == 0, done.err
    assert not list(hostile.rglob("mark"))


def test_libraries_do_not_take_it_for_the_users_home(here, monkeypatch):
    """As they take its folder ~ of a user without a home: for weights, which are pickles, and for Horovod's cache."""
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", "home")
    home = Path(folders()["HOME"])
    assert home.is_absolute()
    assert not home.is_relative_to(here)
    assert home.stat().st_mode & 0o777 == 0o700
    assert not (here / "home").exists()


@pytest.mark.processes
def test_a_command(hostile):
    shutil.rmtree(hostile / "manyheads")  # that one is what is typed
    done = execute(sys.executable, "-m", "manyheads.runner", "resume", "nothing", cwd=hostile)
    assert_refused(done, hostile)
    assert not list(hostile.rglob("mark"))


@pytest.mark.needs("gcc", "mpirun")
@pytest.mark.parametrize("home", [None, "(null)"])
def test_open_mpi_loads_no_library_from_it_without_a_home(here, monkeypatch, tmp_path, home):
    from manyheads.runner.parallel import horovod_installation

    components = here / "(null)" / ".openmpi" / "components"
    components.mkdir(parents=True)
    mark, source = tmp_path / "mark", tmp_path / "evil.c"
    code = f'#include <stdio.h>\n__attribute__((constructor)) void go(void) {{ fclose(fopen("{mark}", "w")); }}\n'
    source.write_text(code)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", components / "mca_schizo_evil.so", source], check=True)
    monkeypatch.chdir(here)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    assert horovod_installation.open_mpi.__wrapped__() is not None
    assert not mark.exists()
    subprocess.run(["mpirun", "--version"], capture_output=True, check=True)
    assert mark.exists()  # as it does by itself


@pytest.mark.processes
@pytest.mark.parametrize("launcher", ["launcher=spawn launcher.warm=false", tail("launcher=torchrun")])
def test_a_class_of_the_users_own_is_found_there(run_command, here, monkeypatch, launcher):
    """And what it imports beside it; a module that hides an installed one still is not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / ".names"))
    (here / "my_package.py").write_text("import my_helper\n" + OWN)
    (here / "my_helper.py").touch()
    (here / "torch.py").write_text(EVIL)
    (here / "sitecustomize.py").write_text(EVIL)
    alone = ("parallel=ddp", "launcher.nproc_per_node=1", *launcher.split())
    done = run_command(*CUSTOM, *alone, "hydra.run.dir=out")
    assert done.code == 0, done.err
    assert (here / "imported").exists()
    assert not (here / "mark").exists()


class TestThePath:
    @pytest.fixture
    def path(self, here, monkeypatch):
        monkeypatch.chdir(here)
        monkeypatch.setattr(sys, "path", list(sys.path))
        return sys.path

    @pytest.mark.parametrize("target", ["torch.nn.MSELoss", "nobody_has_this.Net", "os.system", "x", ""])
    def test_stays_as_it_is(self, path, target):
        before = list(path)
        find_in_own_folders({"loss": {"_target_": target}, "x": [1, None]})
        assert path == before

    @pytest.mark.parametrize("where", ["model", "deeper"])
    def test_ends_with_the_directory_where_a_config_names_a_package_in_it(self, path, here, where):
        section = {"_target_": "my_package.Net"}
        before = list(path)
        find_in_own_folders({"model": section if where == "model" else {"x": [section]}})
        assert path == [*before, str(here)]

    def test_stays_as_it_is_where_an_installed_class_is_located(self, path):
        before = list(path)
        assert locate("loss", "torch.nn.MSELoss").__name__ == "MSELoss"
        assert path == before

    def test_is_no_environment_variable_of_ranks(self, here, monkeypatch):
        monkeypatch.chdir(here)
        monkeypatch.setenv("PYTHONPATH", "/mine")
        launcher = Spawn(name="spawn", nproc_per_node=2, threads_per_rank=1, stall_timeout=600, warm=True)
        found = environment(launcher)
        assert str(here) not in found["PYTHONPATH"].split(os.pathsep)
        assert found["PYTHONPATH"].endswith("/mine")
        assert found["PYTHONSAFEPATH"] == "1"

    def test_compiled_code_is_kept_where_nobody_else_can_write(self, here, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        launcher = Spawn(name="spawn", nproc_per_node=2, threads_per_rank=1, stall_timeout=600, warm=True)
        folder = Path(environment(launcher)["TORCHINDUCTOR_CACHE_DIR"])
        assert folder.is_relative_to(tmp_path / "cache")
        assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o775)  # by an earlier version: there may be another's code in it
        fresh = Path(environment(launcher)["TORCHINDUCTOR_CACHE_DIR"])
        assert not fresh.is_relative_to(tmp_path / "cache")
        assert fresh.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.parametrize("safe", ["", "1"])
def test_the_users_own_path_is_kept(tmp_path, monkeypatch, safe):
    """Where Python was told to keep the script's folder out of the path, there is nothing of it to replace."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSAFEPATH", safe)
    script = "import atexit, runpy, sys; atexit.register(lambda: print(*sys.path, sep=chr(10))); del sys.argv[0]; "
    run = ("-c", f"{script}runpy.run_path(sys.argv[0], run_name='__main__')", str(RUN), "--hydra-help")
    assert str(tmp_path) in execute(sys.executable, *run, cwd=ROOT).out.splitlines()


class TestLibraries:
    """What they would load, or read settings from, in the folder that they are imported in."""

    @pytest.fixture
    def planted(self, here):
        """A libcuda.so.1 that leaves a mark when it is loaded, and settings of Matplotlib that it can't parse."""
        compiler = shutil.which("cc") or pytest.skip("without a C compiler")
        source = here / "planted.c"
        mark = f'open("{here}/mark", O_CREAT | O_WRONLY, 0600);'
        source.write_text(f"#include <fcntl.h>\n__attribute__((constructor)) void f(void) {{ {mark} }}\n")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", here / "libcuda.so.1", source], check=True)
        (here / "matplotlibrc").write_bytes(b"text.usetex: True\n\xff\xfe")
        return here

    @pytest.mark.processes
    @pytest.mark.parametrize(
        "launcher",
        [
            "inline",
            tail("spawn launcher.warm=false"),
            tail("spawn launcher.warm=true"),
            tail("torchrun"),
            tail("mpirun"),
            tail("horovodrun"),
        ],
    )
    def test_a_run(self, planted, launcher):
        words = [f"launcher={launcher.split()[0]}", *launcher.split()[1:]]
        if launcher != "inline":
            words += ["launcher.nproc_per_node=2", f"parallel={'horovod' if launcher == 'horovodrun' else 'ddp'}"]
        words += [*FAST, "callbacks=[confusion_matrix]", "hydra.run.dir=out"]
        done = execute(sys.executable, str(RUN), *words, cwd=planted, cold=True)
        assert done.code == 0, done.err
        assert (planted / "out" / "pictures").is_dir()
        assert not (planted / "mark").exists()

    @pytest.mark.processes
    def test_a_program_of_the_users_own(self, planted, monkeypatch):
        """Its runs are commands; the program itself is left as it is."""
        monkeypatch.setenv("PYTHONPATH", str(ROOT / ".names"))
        run = f"manyheads.run({[*FAST, 'launcher=inline']})"
        program = f"import manyheads, sys; before = [*sys.meta_path]; {run}; assert sys.meta_path == before"
        done = execute(sys.executable, "-c", program, cwd=planted, cold=True)
        assert done.code == 0, done.err
        assert not (planted / "mark").exists()
