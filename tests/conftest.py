"""What all tests share: the command line as a real process, and one finished run to look at."""

import gc
import logging
import os
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

# Tests share the cores with each other, so idle threads must not spin. OpenMP reads this when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.pop("OMP_NUM_THREADS", None)  # a run warns that it does not use it
# scikit-learn sets them when it is imported, and a process that ranks are forked from is restarted for new values.
os.environ |= {"KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"  # one of them imports trio, for half a second in each worker

import pytest
import torch

from manyheads.runner.option.locate import STARTED_IN
from manyheads.runner.run.files import in_turn
from manyheads.runner.run.run_folder import RunFolder
from tests import apex_library, browser, composing, longest_first, needs, object_storage, zygote

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "run.py"
COMMANDS = f"python {shlex.quote(str(ROOT / 'runner'))}"  # as it is printed outside of the checkout
FAST = (
    *("trainer.max_steps=2", "data.batch_size=32", "model.width=2", "trainer.device=cpu", "trainer.log_every=1"),
    "launcher.threads_per_rank=1",  # the cores are shared by several workers
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-seconds", action="store_true", help="renew the seconds of the test files that run")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C works as in a terminal although a shell ignores it in what it runs in the background.

    Only tests marked gpu see GPUs: the others count on the CPU, in this process and in those that it starts.
    """
    if not selects_gpu(config):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if config.option.record_seconds and not is_worker(config):
        config.pluginmanager.register(longest_first.Recorder())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # below nohup, too
    config.pluginmanager.register(needs)
    config.pluginmanager.register(browser)
    config.pluginmanager.register(object_storage)
    if not is_worker(config):
        composing.share()
    if getattr(config.option, "numprocesses", None) and not is_worker(config):
        zygote.share()
    zygote.lend_forkservers()
    composing.remember()
    gc.disable()  # until all is imported


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Workers need not import torch: each would take seconds."""
    for spec in specs:
        spec.python = shlex.join([sys.executable, "-P", zygote.__file__])


def pytest_collection_finish() -> None:
    """Nobody looks for garbage among what was imported or collected: that was a sixth of small tests' time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Otherwise C++ libraries print what they take for leaks, and Hypothesis fails to find who refers to an object."""
    gc.unfreeze()


@dataclass(frozen=True)
class Done:
    """How a command ended. out, err: what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A temporary folder that all of xdist's workers have in common."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if is_worker(request.config) else folder


@pytest.fixture(scope="session", autouse=True)
def _home_of_the_tests(tmp_path_factory: pytest.TempPathFactory, shared_folder: Path) -> Iterator[None]:
    """Seals and trust are of a user who has neither key nor settings yet; child processes inherit that."""
    torch.set_num_threads(1)  # the cores are shared by several workers
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(shared_folder / "state"))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("MANYHEADS_LEASES", str(tmp_path_factory.mktemp("leases")))  # runs of other workers share devices
        patch.delenv("MANYHEADS_TRUST", raising=False)
        patch.delenv("COLUMNS", raising=False)  # xdist sets it
        patch.setenv("PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))  # of "python"
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / ".names"), str(ROOT)]))  # where ranks find these tests
        yield


class RunCommand(Protocol):
    def __call__(self, *overrides: str, cwd: Path | None = None, timeout: float = 120) -> Done: ...


def execute(*command: str, cwd: Path, timeout: float = 120, cold: bool = False) -> Done:
    """Run a command to its end, or kill it after ``timeout`` seconds and raise TimeoutExpired.

    ``cold``: in a new Python, not in a fork of one that has imported torch.
    """
    if not cold and zygote.runs(command):
        return Done(*zygote.run(command, cwd=cwd, timeout=timeout))
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def _left_as_found() -> Iterator[None]:
    """Launching adds the working directory to the path, and composing a saved config stores it with Hydra."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    os.environ.pop(STARTED_IN, None)
    composing.forget_stored()


@pytest.fixture
def run_command(tmp_path: Path) -> RunCommand:
    """``python run.py <overrides>`` in a process of its own, in the test's temporary folder unless ``cwd`` is given."""

    def run(*overrides: str, cwd: Path | None = None, timeout: float = 120) -> Done:
        return execute(sys.executable, str(RUN), *overrides, cwd=cwd or tmp_path, timeout=timeout)

    return run


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[RunCommand]:
    """``run_command`` without a process of its own: for commands that are refused before they start anything."""
    for name in ("HYDRA_FULL_ERROR", "PYTHONPATH", "PYTHONSAFEPATH"):  # so that the command's own setting is undone too
        monkeypatch.setenv(name, os.environ.get(name, ""))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*overrides: str, cwd: Path | None = None, timeout: float = 0) -> Done:
        monkeypatch.chdir(cwd or tmp_path)
        monkeypatch.setattr(sys, "argv", [str(RUN), *overrides])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(RUN), run_name="__main__")
        return Done(int(end.value.code or 0), *capfd.readouterr())

    yield run
    for handler in set(root.handlers) - set(handlers):
        handler.close()  # run.log
    root.handlers[:], root.level = handlers, level


@pytest.fixture(scope="session")
def finished_run(shared_folder: Path) -> RunFolder:
    """A completed run of two updates, made once for all of xdist's workers; to be read only."""
    folder = RunFolder(shared_folder / "finished" / "run")
    folder.path.parent.mkdir(exist_ok=True)
    with in_turn(shared_folder / "finished.lock"):
        if not folder.result.exists():
            overrides = (*FAST, f"hydra.run.dir={folder.path}")
            done = execute(sys.executable, str(RUN), *overrides, cwd=folder.path.parent)
            assert done.code == 0, done.err
    return folder


@pytest.fixture
def apex(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """NVIDIA Apex can be imported: the real one where it works, else a stand-in that computes on the CPU."""
    with apex_library.importable(monkeypatch) as module:
        yield module


@pytest.fixture
def library(request: pytest.FixtureRequest) -> None:
    """For tests over all options: skipped without the library of the test's own option; Apex may be a stand-in."""
    names = {str(value) for value in request.node.callspec.params.values()}
    if any(name == "apex" or name.startswith("fused_") for name in names):
        request.getfixturevalue("apex")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts the real command; leave out what needs a GPU; sort the files that workers share."""
    for item in items:
        if {"finished_run", "run_command", "real_run"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    if not selects_gpu(config):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    if is_worker(config):
        longest_first.sort(items, longest_first.recorded())


def selects_gpu(config: pytest.Config) -> bool:
    """Whether tests marked gpu were asked for."""
    return "gpu" in config.option.markexpr


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is one of xdist's, which share the tests."""
    return hasattr(config, "workerinput")


@contextmanager
def held(folder: RunFolder) -> Iterator[subprocess.Popen]:
    """Another process works on the run meanwhile."""
    code = (
        "import sys; from manyheads.runner.run.run_folder import RunFolder\n"
        "with RunFolder(sys.argv[1]).locked(): print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield holder


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time as ``time.perf_counter`` tells it, to be put on by hand."""
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    return clock
