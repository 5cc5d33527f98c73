"""The environment of ranks: threads, import path, rendezvous."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.launchers.launcher import Launcher
from manyheads.runner.errors import warn
from manyheads.runner.machine.user_folders import can_write, opened_to_others, user_folder
from manyheads.runner.run import scratch
from manyheads.runner.run.rank_info import EXPORTED

NAMES = Path(__file__).resolve().parent.parent / ".names"
# A checkout's own code comes first; what is installed is found as any other package, behind Python's own modules.
PROJECT = [str(NAMES)] if NAMES.is_dir() else []

BRIEF_SPINS = 100  # a few microseconds; 1,000 are slower if all cores are busy, 0 if the next operation follows soon


def environment(launcher: Launcher) -> dict[str, str]:
    """Variables that every rank gets, the same under every launcher, so that comparisons are fair."""
    variables = {
        **common(),
        **folders(),
        "OMP_NUM_THREADS": str(launcher.threads),
        "MKL_NUM_THREADS": str(launcher.threads),
        # The driver's order, not the fastest first, so that indices name the same GPUs if there are several kinds.
        "CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        **waiting(launcher.wait_policy),
    }
    if sys.platform == "linux" and not launcher.machines:  # nothing need listen on other interfaces
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            variables[name] = os.environ.get(name, "lo")
    return variables


def folders() -> dict[str, str]:
    """Variables that name where libraries keep settings and compiled code: fresh folders, if the user has none.

    Otherwise they would look where somebody else can put code first: torch in a folder of a known name in /tmp, Open
    MPI in (null)/.openmpi of the working directory, others in a folder ~ there.
    """
    home, cache = os.path.expanduser("~"), user_folder("cache")
    if not os.path.isabs(home):
        home = fresh_folder("home")
        warn(f"you have no home folder; libraries keep their settings and caches in {home} until this command ends")
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    compiled = named or (str(cache / "manyheads" / "torchinductor") if cache else None)
    if compiled is None or (why := _unusable(Path(compiled), is_named=bool(named))) is not None:
        fresh = fresh_folder("torchinductor")
        if compiled is not None:
            warn(f"{compiled} {why}; torch keeps compiled code in {fresh} until this command ends")
        compiled = fresh
    return {**({} if os.environ.get("HOME") == home else {"HOME": home}), "TORCHINDUCTOR_CACHE_DIR": compiled}


def _unusable(compiled: Path, *, is_named: bool) -> str | None:
    """Why compiled code cannot be kept in a folder; one that the user names may be anybody's."""
    if not can_write(compiled):
        return "can't be written"
    if is_named:
        return None
    others = opened_to_others(compiled)
    return None if others is None else f"may hold others' code, since they may write to {others}: remove it"


def fresh_folder(name: str) -> str:
    """A folder that only this user can enter, and that lives as long as this process. Raises OSError."""
    folder = scratch.of_process() / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)


def common() -> dict[str, str]:
    """Those of the variables that do not depend on the launcher."""
    return {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, [*PROJECT, os.environ.get("PYTHONPATH")]))),
        "PYTHONSAFEPATH": "1",  # the working directory may be a folder that somebody sent: see runner/option/locate.py
        "MANYHEADS_PARENT": str(os.getpid()),
    }


def exported(environment: dict[str, str]) -> dict[str, str]:
    """The variables of this process's environment that remote ranks need too; without its parent's id."""
    here = {name: value for name, value in os.environ.items() if EXPORTED.fullmatch(name)}
    return {name: value for name, value in {**here, **environment}.items() if name != "MANYHEADS_PARENT"}


def waiting(policy: str) -> dict[str, str]:
    """Variables that set how an idle thread of GNU OpenMP, which torch ships, waits for work.

    ``default``: as the user's environment says, else OpenMP's default, which is to spin for about a millisecond. That
    is best while every thread has a core; on a shared core, spinning takes most of the time from the threads that are
    waited for. ``brief``: spin for microseconds, then sleep. On free cores a small model then trains at a third of
    the speed, since each operation has to wake the thread. Others: OpenMP's own policies.

    Source: https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html.
    """
    if policy in ("active", "passive"):
        return {"OMP_WAIT_POLICY": policy}
    chosen = any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    return {} if policy == "default" or chosen else {"GOMP_SPINCOUNT": str(BRIEF_SPINS)}


@contextmanager
def file_rendezvous() -> Iterator[dict[str, str]]:
    """Variables for a rendezvous of ranks on this machine through a file, so that ports cannot clash."""
    with scratch.folder() as folder:
        yield {"MANYHEADS_MEETING": str(folder / "rendezvous")}


@contextmanager
def rendezvous() -> Iterator[dict[str, str]]:
    """The same, with variables for PyTorch's own env:// rendezvous, on a port that is currently free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with file_rendezvous() as variables:
        yield {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **variables}


@contextmanager
def variables_set(variables: dict[str, str]) -> Iterator[None]:
    """A context in which this process has these environment variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
