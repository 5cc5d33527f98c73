"""xdist's workers are forks of one process that has collected the tests: once, and not once for each worker.

Half of what a worker does before its first test is importing torch, the other half collecting. Both are done by a fork
of the zygote (zygote.py), of which each worker is a fork: it joins xdist where an ordinary one has collected.
"""

import os
import shutil
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.config import _prepareconfig
from execnet import gateway_io
from execnet.gateway_base import Channel, ExecModel, Popen2IO
from xdist import remote

from manyheads.runner.machine.process import die_with_parent
from tests import zygote


class Forks:
    """A plugin of xdist's controller, in whose session workers are forks."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp()
        self._path = f"{self._folder}/workers"
        self._popen: Any = gateway_io.Popen2IOMaster

    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Start collecting; if it fails, ordinary workers will say why."""
        code = f"from tests import workers; workers.collect({sys.path}, {[*config.invocation_params.args]})"
        with socket.socket(socket.AF_UNIX) as listening, open(os.devnull, "r+") as null:
            listening.bind(self._path)
            listening.listen()
            zygote.Code(code, {0: null.fileno(), 1: null.fileno(), 2: 2, LISTENING: listening.fileno()})
        with suppress(ConnectionError):
            zygote.Zygote(zygote.ROOT, at=self._path).close()
            gateway_io.Popen2IOMaster = lambda arguments, model: Worker(arguments[-1], model, self._path)

    def pytest_xdist_getremotemodule(self) -> ModuleType | None:
        return None if gateway_io.Popen2IOMaster is self._popen else sys.modules[__name__]

    def pytest_unconfigure(self) -> None:
        gateway_io.Popen2IOMaster = self._popen
        shutil.rmtree(self._folder)


class Worker(Popen2IO):
    """What execnet has of a worker, by the methods of Popen2IOMaster. ``code``: what it runs, with a pipe each way."""

    def __init__(self, code: str, execmodel: ExecModel, path: str):
        (theirs, ours), (ours_too, theirs_too) = os.pipe(), os.pipe()
        self._process = zygote.Code(code, {0: theirs, 1: theirs_too, 2: 2}, zygote=zygote.Zygote(zygote.ROOT, at=path))
        os.close(theirs)
        os.close(theirs_too)
        super().__init__(os.fdopen(ours, "wb"), os.fdopen(ours_too, "rb"), execmodel)

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()


# -- in the process that collects ------------------------------------------------------------------------

LISTENING = 3  # its descriptor


class Collected:
    """A plugin that waits for xdist after collecting, in one process for all workers."""

    session: pytest.Session
    failed: list[pytest.CollectReport] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self.failed.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        Collected.session = session
        session.config.pluginmanager.unregister(self)
        capture(session.config).stop_global_capturing()  # workers share no file for what their tests print
        zygote.accept(socket.socket(fileno=LISTENING))


def collect(path: list[str], arguments: list[str]) -> None:
    """Collect what pytest would with these arguments, and be what workers are forked from."""
    die_with_parent()
    sys.path[:] = path
    # The zygote has imported Hydra, which brings a plugin of pytest's that nothing here uses.
    config = _prepareconfig(["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning", *arguments])
    remote.setup_config(config, None)
    config.workerinput = {"workerid": "collecting"}  # type: ignore[attr-defined]
    config.pluginmanager.register(Collected())
    config.hook.pytest_cmdline_main(config=config)


def capture(config: pytest.Config) -> Any:
    return config.pluginmanager.getplugin("capturemanager")


# -- in a worker -----------------------------------------------------------------------------------------


def work(channel: Channel) -> None:
    """Be one of xdist's workers, as its module ``remote`` is, but for the collecting."""
    session = Collected.session
    config: Any = session.config
    config.workerinput, _, options, _ = channel.receive()
    config.workeroutput = {}
    config._tmp_path_factory._given_basetemp = Path(options["basetemp"])
    os.environ["PYTEST_XDIST_TESTRUNUID"] = config.workerinput["testrunuid"]
    os.environ["PYTEST_XDIST_WORKER"] = config.workerinput["workerid"]
    os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(config.workerinput["workercount"])
    capture(config).start_global_capturing()
    worker = remote.WorkerInteractor(config, channel)
    remote.interactor = worker  # which it takes for a global of its module
    worker.pytest_sessionstart(session)
    worker.pytest_collection()
    for report in Collected.failed:
        worker.pytest_collectreport(report)
    worker.pytest_collection_finish(session)
    try:
        worker.pytest_runtestloop(session)
    except (KeyboardInterrupt, pytest.exit.Exception):
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    except BaseException:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        config.notify_exception(pytest.ExceptionInfo.from_current(), config.option)
    finally:
        config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
        config._ensure_unconfigure()


if __name__ == "__channelexec__":  # execnet runs this file's text in the worker
    from tests import workers

    workers.work(channel)  # type: ignore[name-defined]  # noqa: F821
