"""A process that has imported what the project's commands import, and runs each command in a fork of itself.

Of a short run's time four fifths pass in importing torch. A command is the real one all the same: the script runs as
``__main__`` with its own arguments, environment, folder and files, and what it starts are real processes. Only Hydra
has a memory (composing.py), and multiprocessing's forkserver, from which ranks are forked, is a fork too where it would
import the same once more; so is that of the tests' own process (``lend_forkservers``). xdist's workers are forks too.
Tests of how processes start, in tests/launchers, start real ones.
"""

import atexit
import fcntl
import gc
import json
import os
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver, util
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn

from setproctitle import getproctitle

from manyheads.runner.machine.process import die_with_parent

SHARED = "TESTS_ZYGOTE"  # the socket of the one that xdist's workers share
# An argument without meaning: titles overwrite the command line, and psutil splits one that is longer at its spaces.
ROOM = " " * 400
IMPORTED = (
    *("hydra._internal.utils", "hydra._internal.hydra", "rich.progress", "rich._emoji_codes", "jinja2"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg"),
    *("manyheads.launchers.launch", "manyheads.launchers.sweep.run_jobs", "manyheads.runner.loop.session"),
    *("manyheads.runner.loop.build", "manyheads.runner.model.rank.small_cnn", "manyheads.runner.parallel.rank.ddp"),
    *(
        "manyheads.runner.commands.reproduce",
        "manyheads.runner.commands.parity",
        "manyheads.runner.report.write_report",
    ),
    *("manyheads.runner.precision.rank.fp32", "manyheads.runner.logger.rank.tensorboard", "torchvision"),
    *("torch._inductor.config", "torch.utils.serialization", "manyheads.runner.parallel.rank.model_parallel.strategy"),
    *("manyheads.runner.app", "hydra._internal.logging_config", "platformdirs.unix", "tracemalloc"),
)
ROOT = Path(__file__).resolve().parent.parent
# What Python and libraries read as they start: with other values a command gets a process of its own.
READ_AT_START = re.compile(r"(OMP|GOMP|KMP|MKL|OPENBLAS|TORCH|PYTORCH|MALLOC|LD)_\w+|PYTHON(?!PATH)\w+")


def runs(command: tuple[str, ...]) -> bool:
    """Whether it is one of the project's commands that a zygote started in this environment can run."""
    script = command[1:2] == (str(ROOT / "run.py"),) or command[1:3] in (
        ("-m", "manyheads.runner"),
        ("-m", "manyheads"),
    )
    return command[0] == sys.executable and script and _read_at_start(dict(os.environ)) == _Zygote.of(ROOT).read


def run(command: tuple[str, ...], *, cwd: Path, timeout: float, checkout: Path = ROOT) -> tuple[int, str, str]:
    """The exit code, what it wrote to stdout and to stderr. Raises TimeoutExpired, after it was killed.

    ``checkout``: whose code runs, which its own tests/zygote.py has imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        forked = Forked(command, cwd=cwd, out=out, err=err, zygote=_Zygote.of(checkout))
        try:
            code = forked.wait(timeout)
        except subprocess.TimeoutExpired:
            forked.kill()
            forked.wait()
            raise
        return code, out.read_text(), err.read_text()


def share() -> str:
    """Start a zygote for this process and all that it starts, such as xdist's workers. Returns where it listens."""
    folder = tempfile.mkdtemp()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path := f"{folder}/zygote")
        listening.listen()
        _start(ROOT, listening, "listening", ROOM)
    atexit.register(shutil.rmtree, folder)
    os.environ[SHARED] = path
    return path


def _start(checkout: Path, connection: socket.socket, *more: str) -> None:
    """Start a zygote, which ends with this process."""
    command = [sys.executable, "-m", "tests.zygote", str(connection.fileno()), *more]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(checkout / ".names"), str(checkout)])}
    process = subprocess.Popen(command, pass_fds=[connection.fileno()], cwd=checkout, env=environment)
    atexit.register(process.kill)


class _Zygote:
    """A connection to a zygote, for one command at a time. ``read``: what that one read of the environment at start."""

    def __init__(self, checkout: Path) -> None:
        if checkout == ROOT:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(os.environ.get(SHARED) or share())
        else:
            self._socket, there = socket.socketpair()
            with there:
                _start(checkout, there)
        self._answers = self._socket.makefile("rb", buffering=0)  # so that select sees what was not yet read
        self.read = self.hear() if checkout == ROOT else _read_at_start(dict(os.environ))

    @staticmethod
    @cache
    def of(checkout: Path) -> "_Zygote":
        return _Zygote(checkout)

    def ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> int:
        """The process id of a command, whose exit code is the next thing to hear."""
        if descriptors:
            socket.send_fds(self._socket, [b" "], descriptors)
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return self.hear()

    def hear(self) -> Any:
        line = self._answers.readline()
        assert line, "the process that commands are forked from has died"
        return json.loads(line)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def speaks(self, within: float | None) -> bool:
        """Whether there is something to hear in that many seconds; None for no limit."""
        return bool(select.select([self._socket], [], [], within)[0])


class Forked:
    """A command of the project's in a fork of a zygote, with what subprocess.Popen has of methods."""

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        cwd: Path,
        out: Path,
        err: Path,
        start_new_session: bool = False,
        zygote: _Zygote | None = None,
    ):
        """``out``, ``err``: files, maybe the same one, to which it appends what it writes to stdout and stderr."""
        self.args = command
        request = {"command": command[1:], "out": str(out), "err": str(err), "session": start_new_session}
        self._ask(request, cwd, (), zygote)

    def _ask(self, request: dict[str, Any], cwd: Path, descriptors: Sequence[int], zygote: _Zygote | None) -> None:
        self.returncode: int | None = None
        self._zygote, self._own = zygote or _Zygote(ROOT), zygote is None
        self.pid = self._zygote.ask(request | {"cwd": str(cwd), "environment": dict(os.environ)}, descriptors)

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired if the command still runs after so many seconds."""
        if self.returncode is None:
            if not self._zygote.speaks(within=timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._zygote.hear()
            if self._own:
                self._zygote.close()
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Interpreter(Forked):
    """A Python that runs ``code``, and may outlive this process: a forkserver of multiprocessing, or a worker.

    ``passed``: descriptors that it gets under the same numbers, beside 0 to 2.
    """

    def __init__(self, kind: Literal["forkserver", "worker"], code: str, passed: Sequence[int] = ()):
        self.args = (code,)
        descriptors = [0, 1, 2, *passed]
        self._ask({"code": code, "kind": kind, "descriptors": descriptors}, Path.cwd(), descriptors, None)
        atexit.register(self._zygote.close)


class _OsOfForkservers:
    """The module os for multiprocessing, which waits for forkservers that are no children of this process too."""

    def __init__(self) -> None:
        self.forked: dict[int, _Interpreter] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        if pid not in self.forked:
            return os.waitpid(pid, options)
        if options & os.WNOHANG and self.forked[pid].poll() is None:
            return 0, 0
        return pid, self.forked.pop(pid).wait()


SPAWN = util.spawnv_passfds


def lend_forkservers() -> None:
    """Forkservers of this process's are forks too from now on, for all of whose ranks the imports are done."""
    places = _OsOfForkservers()
    forkserver.os = places  # type: ignore[attr-defined]

    def spawnv_passfds(path: str, arguments: list[str], passed: list[int]) -> int:
        # A zygote that were started now would read what is set for ranks.
        if not _is_forkserver(arguments) or SHARED not in os.environ:
            return SPAWN(path, arguments, passed)
        server = _Interpreter("forkserver", arguments[-1], passed)
        places.forked[server.pid] = server
        return server.pid

    util.spawnv_passfds = spawnv_passfds  # type: ignore[assignment]


def _is_forkserver(arguments: list[str]) -> bool:
    return arguments[-2] == "-c" and "multiprocessing.forkserver import main" in arguments[-1]


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if READ_AT_START.fullmatch(name)}


# -- in the zygote ---------------------------------------------------------------------------------------


def accept(listening: socket.socket) -> NoReturn:
    """Fork for each process that connects, which is sent what this one read of the environment."""
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            die_with_parent()
            listening.close()
            connection.sendall(json.dumps(_read_at_start(dict(os.environ))).encode() + b"\n")
            serve(connection)
            os._exit(0)
        connection.close()
        while _reaped():
            pass


def _reaped() -> bool:
    """Whether there was a child that has ended."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def serve(connection: socket.socket) -> None:
    """Fork for each request, and answer with the process id, then with the exit code."""
    installed = _without_pythonpath(sys.path)
    file = connection.makefile("w")
    for request, descriptors in _requests(connection):
        pid = os.fork()
        if pid == 0:
            file.close()
            connection.close()
            if "code" in request:
                _become_interpreter(request, descriptors)
            _become(request, installed)
        for descriptor in descriptors:
            os.close(descriptor)
        print(pid, file=file, flush=True)
        status = os.waitpid(pid, 0)[1]
        with suppress(BrokenPipeError):  # who asked for it has ended
            print(os.waitstatus_to_exitcode(status), file=file, flush=True)


def _requests(connection: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """What is asked for, with the descriptors that came before it."""
    text, descriptors = b"", list[int]()
    while True:
        part, received, *_ = socket.recv_fds(connection, 2**16, 16)
        if not part:
            return
        text, descriptors = text + part, [*descriptors, *received]
        if text.endswith(b"\n"):
            yield json.loads(text), descriptors
            text, descriptors = b"", []


def _become_interpreter(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Run another process's code, to its end."""
    above = max(request["descriptors"]) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD, above) for each in descriptors]
    for number, descriptor in zip(request["descriptors"], moved, strict=True):
        os.dup2(descriptor, number, inheritable=number < 3)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["kind"] == "worker":
        die_with_parent()
    _interpret(request["code"], request["descriptors"], handlers=request["kind"] == "worker")


def _become(request: dict[str, Any], installed: list[str]) -> NoReturn:
    """Be the command, to its end."""
    for number, name in ((1, "out"), (2, "err")):
        descriptor = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request.get("session"):
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    util.spawnv_passfds = _forked_or_spawned(util.spawnv_passfds)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first, *arguments = request["command"]
    sys.orig_argv[:] = [sys.executable, *request["command"]]
    if first == "-m":
        name, *arguments = arguments
        sys.path[:] = [os.getcwd(), *own, *installed]
        sys.argv = [name, *arguments]
        _end(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))
    sys.path[:] = [str(Path(first).parent), *own, *installed]
    sys.argv = [first, *arguments]
    _end(lambda: runpy.run_path(first, run_name="__main__"))


def _end(main: Any) -> NoReturn:
    """Call ``main``, and leave as Python does, with its exit code; no handler of the zygote's own runs."""
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    util._exit_function()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _without_pythonpath(path: list[str]) -> list[str]:
    own = {os.path.abspath(each) for each in ("", *os.environ.get("PYTHONPATH", "").split(os.pathsep))}
    return [each for each in path if os.path.abspath(each) not in own]


def _forked_or_spawned(spawn: Any) -> Any:
    """In the place of multiprocessing's own: a forkserver is a fork, which has imported everything already."""

    def spawnv_passfds(path: str, arguments: list[str], passed: list[int]) -> int:
        if not _is_forkserver(arguments):
            return spawn(path, arguments, passed)
        pid = os.fork()
        if pid:
            return pid
        _interpret(arguments[-1], passed, handlers=False)

    return spawnv_passfds


def _interpret(code: str, passed: Sequence[int], *, handlers: bool) -> NoReturn:
    """Be a Python that runs this code, with these descriptors and the first three, and maybe its handlers at exit."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in passed:
            try:
                os.close(descriptor)
            except OSError:
                continue  # the one by which they were listed
    sys.modules["__main__"] = ModuleType("__main__")
    forkserver._forkserver.__init__()  # type: ignore[misc]  # the parent's is none of this one's

    def main() -> None:
        try:
            exec(code, {"__name__": "__main__"})
        finally:
            if handlers:
                atexit._run_exitfuncs()

    _end(main)


if __name__ == "__main__" and sys.argv[-2] == "-c":  # as xdist starts a worker: with code to run
    sys.exit(_Interpreter("worker", sys.argv[-1]).wait())

if __name__ == "__main__":
    import importlib

    from manyheads.runner.config.lookup import options, read_option
    from manyheads.runner.option.declared import GROUPS, declared
    from tests import composing

    die_with_parent()
    # From Python 3.12 on, of a fork that this file makes of a command with threads, on the command's own stderr.
    warnings.filterwarnings("ignore", ".*use of fork.. may lead to deadlocks", DeprecationWarning, "__main__")
    getproctitle()  # so that it knows where a title stands, before a command changes what it is found by: environ
    gc.disable()
    for module in IMPORTED:
        with suppress(ModuleNotFoundError):  # torch 2.6 has no torch.utils.serialization
            importlib.import_module(module)
    for group in GROUPS:
        for name in options(group):
            declared(group, read_option(group, name))
    composing.remember()
    composing.composed()
    gc.freeze()
    gc.enable()
    given = socket.socket(fileno=int(sys.argv[1]))
    accept(given) if sys.argv[2:] else serve(given)
