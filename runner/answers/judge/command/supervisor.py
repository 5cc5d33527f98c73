"""Runs one command for its parent, times it, and ends every process that it started: a program of its own.

It reads the task as JSON from its standard input, and prints how the command ended. Whatever ends first, the command,
the time that it may take, or the parent, no process of the command remains: those that leave its session become
children of this process. It only imports what starts quickly.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


class Stopped(BaseException):
    """A signal from the parent, or of its end, or of the clock."""


def stop(signum: int, _: FrameType | None) -> None:
    """A signal handler that raises Stopped."""
    raise Stopped(signum)


def main() -> None:
    """Run the command of the task on standard input in a child: if the command kills that, this process remains."""
    task = json.load(sys.stdin)
    for signum in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(signum, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    adopt(libc)
    guard = os.getpid()
    if not os.fork():
        adopt(libc)
        supervise(task, libc, guard)
        return
    try:
        if os.getppid() == task["parent"]:
            os.wait()
    except Stopped:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()


def adopt(libc: ctypes.CDLL) -> None:
    """Become the parent of descendants that lose theirs, and be stopped by the end of this process's own parent."""
    if sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def supervise(task: dict, libc: ctypes.CDLL, guard: int) -> None:
    """Run the task's command, end all that it left, and print the report; ``guard``: the parent, which must live."""
    report = {"timed_out": False, "mounted": False, "outlived": 0, "code": None, "seconds": None}
    try:
        if os.getppid() == guard:
            report["mounted"] = mount(libc, task["shared"])
            run(task, report)
    except Stopped:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        report["outlived"] = end_descendants()
    print(json.dumps(report), flush=True)


def run(task: dict, report: dict) -> None:
    """Run the command, and time it."""
    marks = Path(task["marks"])
    os.chdir(task["folder"])
    null = os.open(os.devnull, os.O_RDONLY)
    console = os.open(marks / "console.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    streams = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, console, 1), (os.POSIX_SPAWN_DUP2, console, 2)]
    defaults = (signal.SIGINT, signal.SIGPIPE)
    (marks / "began").touch()
    began = time.perf_counter()
    child = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", task["command"]],
        task["environment"],
        file_actions=streams,
        setsid=True,
        setsigdef=defaults,
    )
    signal.setitimer(signal.ITIMER_REAL, task["timeout"])
    try:
        _, status = os.waitpid(child, 0)
    except Stopped as error:
        report["timed_out"] = error.args[0] == signal.SIGALRM
        raise
    report["seconds"] = time.perf_counter() - began
    (marks / "ended").touch()
    report["code"] = os.waitstatus_to_exitcode(status)


def mount(libc: ctypes.CDLL, shared: Sequence[Sequence[str]]) -> bool:
    """Show each shared path, read-only, at its other path; whether that is possible. If not, these become links."""
    is_root = sys.platform == "linux" and os.geteuid() == 0 and bool(shared)
    can_mount = is_root and libc.unshare(CLONE_NEWNS) == 0
    can_mount = can_mount and libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    for source, target in shared:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if can_mount:
            Path(target).mkdir() if os.path.isdir(source) else Path(target).touch()
            names = os.fsencode(source), os.fsencode(target)
            can_mount = libc.mount(*names, None, MS_BIND | MS_REC, None) == 0
            can_mount = can_mount and libc.mount(b"none", names[1], None, MS_REMOUNT | MS_BIND | MS_RDONLY, None) == 0
        if not can_mount:
            if os.path.isdir(target):
                os.rmdir(target)
            Path(target).unlink(missing_ok=True)
            os.symlink(source, target)
    return can_mount


def end_descendants() -> int:
    """Kill all descendants of this process, and wait for them; returns how many were running."""
    ended = set[int]()
    while True:
        running = descendants(os.getpid())
        for process in running:
            ended.add(process)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            os.waitpid(-1, os.WNOHANG if not running else 0)
        except ChildProcessError:
            return len(ended)


def descendants(ancestor: int) -> list[int]:
    """The processes that descend from this one and have not ended."""
    parents = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state not in "ZX":
                parents[int(name)] = int(parent)
    below, todo = [], [ancestor]
    while todo:
        above = todo.pop()
        children = [process for process, parent in parents.items() if parent == above]
        below += children
        todo += children
    return below


if __name__ == "__main__":
    main()
