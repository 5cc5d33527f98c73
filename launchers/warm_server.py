"""The warm process: it has imported torch and the worker's code once; ranks are forked from it.

It is multiprocessing's forkserver (https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods),
one for each process that launches runs, or in ``several`` one for each environment. It has no thread and no CUDA
context, so that a fork of it is as good as a fresh process, and it is started only when it is needed.
"""

import multiprocessing
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from manyheads.launchers.causes import refusal_of
from manyheads.launchers.environment import common, variables_set
from manyheads.launchers.warm_settings import WAITS_FOR, WarmSettings
from manyheads.runner.errors import Failure, Interrupted, Kind, RunFailed
from manyheads.runner.machine.process import blocked_signals
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run import scratch

CHECK_SECONDS = 1.5  # the user's constructors may take longer; then ranks find out
PRELOAD = "manyheads.launchers.warm_preload"
# Variables that the dynamic loader and Python read when a process starts, or libraries when they are imported. Ranks
# with other values need another server. Not PYTHONPATH: a rank gets the parent's own sys.path. Not CUDA_*,
# TORCH_NCCL_*, TORCH_FR_*: read when a rank begins to use the GPU.
_READ_AT_START = r"(MALLOC|LD)_\w+|GLIBC_TUNABLES|PYTHON(?!PATH)\w+"
READ_AT_START = re.compile(_READ_AT_START)
READ_AT_IMPORT = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|NPY|ONEDNN|DNNL|ATEN|TORCH(?!_NCCL_|_FR_)|PYTORCH|TORCHINDUCTOR|KINETO|TF|"
    rf"PROTOCOL_BUFFERS)_\w+|LOGLEVEL|{_READ_AT_START}"
)
_server: Any = forkserver._forkserver  # there is no public way to end it, or to have another one
_STATE = ("_forkserver_address", "_forkserver_alive_fd", "_forkserver_pid")  # by which servers differ
_read: Mapping[str, str] = {}  # by the current server
_parked: list[tuple[Mapping[str, str], list[Any]]] = []  # of the other servers, with their states; the oldest first
_most = 1
_awaited: WarmSettings | None = None  # by the current server, if it was started by ``begin`` and not told yet


def begin() -> None:
    """Start a server before the ranks' environment is known; it imports what depends on no setting, and then waits.

    ``start`` tells it the environment. Does nothing if there is a server. Call it in the main thread.
    """
    global _awaited, _read
    if _server._forkserver_pid is not None:
        return
    _awaited = WarmSettings(Path(tempfile.mkdtemp(dir=scratch.of_process())))  # noqa: TID251 - in a private folder
    variables = {**common(), WAITS_FOR: str(_awaited.folder)}
    _run(variables)
    _read = _matching(READ_AT_IMPORT, {**os.environ, **variables})


def end_waiting() -> None:
    """End the server if it still waits, since no rank will be forked from it soon."""
    if _awaited is not None:
        stop()


def start(environment: Mapping[str, str], imports: Iterable[str] = ()) -> None:
    """Start a server that imports in the background, or let the one that waits continue; returns at once.

    A server with another environment is stopped first, or within ``several`` kept for later.

    ``environment``: what ranks get in addition to this process's own. ``imports``: modules that most ranks will need,
    for a server that does not run yet. Call it in the main thread, since the server dies with the thread that started
    it, and only while no rank runs, since ranks die with their server.
    """
    global _awaited, _read
    variables = {**environment, "MANYHEADS_IMPORTS": " ".join(imports)}
    everything = {**os.environ, **variables}
    read = _matching(READ_AT_IMPORT, everything)
    if _awaited is not None:
        if _matching(READ_AT_START, read) == _matching(READ_AT_START, _read):
            _awaited.tell(everything)
            _awaited = None
        else:
            stop()
    elif read != _read:
        _switch(read)
    _run(variables)
    _read = read


def _matching(pattern: re.Pattern[str], variables: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in variables.items() if pattern.fullmatch(name)}


def _run(variables: dict[str, str]) -> None:
    """Start multiprocessing's server with these variables, unless it runs."""
    resource_tracker.ensure_running()  # multiprocessing's own; starting it would unblock the signals again
    scratch.of_process()  # where it keeps its sockets
    multiprocessing.set_forkserver_preload([PRELOAD])
    with variables_set(variables), blocked_signals(), without_main_reimport():
        forkserver.ensure_running()


@contextmanager
def several(most: int) -> Iterator[None]:
    """A context in which up to ``most`` servers stay, for runs that alternate between that many environments."""
    global _most
    before, _most = _most, most
    try:
        yield
    finally:
        _most = before
        _end_parked(most=_most - 1)


def _switch(read: Mapping[str, str]) -> None:
    """Make the server that has read these variables the current one; if there is none, there is no current one."""
    if _server._forkserver_pid is not None:
        _parked.append((_read, _exchanged([None] * len(_STATE))))
    if parked := next((candidate for candidate in _parked if candidate[0] == read), None):
        _parked.remove(parked)
        _exchanged(parked[1])
    _end_parked(most=_most - 1)


def _end_parked(*, most: int) -> None:
    """End the oldest parked servers until ``most`` are left."""
    current = _exchanged([None] * len(_STATE))
    while len(_parked) > most:
        _exchanged(_parked.pop(0)[1])
        _end()
    _exchanged(current)


def _exchanged(state: Sequence[Any]) -> list[Any]:
    """Give multiprocessing another server's state; returns the one that it had."""
    before = [getattr(_server, name) for name in _STATE]
    for name, value in zip(_STATE, state, strict=True):
        setattr(_server, name, value)
    return before


def stop() -> None:
    """End all servers, and with them the processes forked from them; the next fork starts a new server."""
    global _awaited
    _awaited = None
    _end()
    _end_parked(most=0)


def _end() -> None:
    if _server._forkserver_pid is not None:
        # It would read the pipe by which it is asked to end only after its imports.
        os.kill(_server._forkserver_pid, signal.SIGKILL)
        _server._stop()


def fork(
    main: Callable[..., None], *arguments: Any, environment: Mapping[str, str], signals: Sequence[int] = ()
) -> BaseProcess:
    """Fork a process that calls ``main(*arguments)``, with signals blocked until it can handle them.

    ``environment``: variables in addition to this process's own, from which the server's may differ. ``signals``: those
    that this process has received. Waits for the server's imports, which take many seconds on a busy machine. Raises
    Interrupted if a signal arrives meanwhile, and RunFailed if the server dies.
    """
    start(environment)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    process = multiprocessing.get_context("forkserver").Process(
        target=_become, args=(main, arguments, {**os.environ, **environment}, cores)
    )
    with without_main_reimport():
        starting = threading.Thread(target=_start, args=(process, failed := list[Exception]()), daemon=True)
        starting.start()
        while starting.is_alive():
            starting.join(0.05)
            if signals and starting.is_alive():
                stop()
                raise Interrupted(signals[0])
    if failed:
        message = "the process that ranks are forked from has died; see the reason above, or set launcher.warm=false"
        raise RunFailed(Failure(Kind.PROCESS_DIED, message=message)) from failed[0]
    return process


def check(run: RunConfig, environment: Mapping[str, str]) -> None:
    """Raises ConfigurationError for what ranks would refuse, which a forked process finds out.

    ``environment``: as for ``fork``. A fork that does not answer in time, or cannot be created, refuses nothing.
    """
    answer, theirs = multiprocessing.get_context("forkserver").Pipe(duplex=False)
    try:
        process = fork(_check, dict(run.written), theirs, environment=environment)
    except RunFailed:  # the ranks may have another environment, or report it
        return
    theirs.close()
    try:
        failure = answer.recv() if answer.poll(CHECK_SECONDS) else None
    except EOFError:
        failure = None
    finally:
        process.kill()
        process.join()
    if (refusal := refusal_of(failure)) is not None:
        raise refusal


def check_once(run: RunConfig, environment: Mapping[str, str]) -> None:
    """As ``check``, before ranks start somewhere else: nothing more is forked here."""
    check(run, environment)
    stop()


def _check(config: Section, answer: Connection) -> None:
    from manyheads.runner.loop.preflight import main

    main(config, answer)


def fresh(main: Callable[..., None], *arguments: Any, environment: dict[str, str]) -> BaseProcess:
    """Start a new process that imports everything itself, at once; arguments as for ``fork``."""
    resource_tracker.ensure_running()  # multiprocessing's own; starting it would unblock the signals again
    process = multiprocessing.get_context("spawn").Process(target=main, args=arguments)
    # Libraries read some variables while they are imported, which is before the process could set them.
    with variables_set(environment), blocked_signals(), without_main_reimport():
        process.start()
    return process


def _start(process: BaseProcess, failed: list[Exception]) -> None:
    """Ask the server for a process, and wait for it."""
    try:
        process.start()
    except (EOFError, OSError) as error:
        failed.append(error)


def _become(
    main: Callable[..., None], arguments: tuple[Any, ...], environment: dict[str, str], cores: set[int] | None
) -> None:
    """Take the parent's environment and cores, like a process started by the parent itself, and call ``main``."""
    from manyheads.launchers.warm_preload import SET_BY_IMPORTS

    os.environ.clear()
    os.environ.update(SET_BY_IMPORTS | environment)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    main(*arguments)


@contextmanager
def without_main_reimport() -> Iterator[None]:
    """A context in which new processes do not start by importing this one's script again, which takes 0.2 s with Hydra.

    Nor do they inherit the start method of a process that was started by another library, such as joblib.
    """
    main = sys.modules["__main__"]
    default: Any = multiprocessing.context._default_context
    method = default._actual_context
    sys.modules["__main__"], default._actual_context = ModuleType("__main__"), multiprocessing.get_context("spawn")
    try:
        yield
    finally:
        sys.modules["__main__"], default._actual_context = main, method
