"""Carries the remote commands of horovodrun and mpirun: the ``ssh`` that they find is ours, and opens no connection.

That program hands the command line to the agent of its own machine. The run's parent passes it on to the agent of the
other machine, which starts it as a child process, and watches and ends it like any other rank.
"""

import itertools
import json
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.launchers.environment import PROJECT
from manyheads.launchers.nodes.link import ParentLink
from manyheads.launchers.nodes.wire import Message
from manyheads.launchers.processes import Ranks, end
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.program import Process, Program

SHELL = "manyheads.launchers.nodes.remote_shell"


class CommandRequests:
    """The requesting side: sends the commands of programs on this machine to other machines."""

    def __init__(self, folder: Path, link: ParentLink):
        self._link, self._numbers = link, itertools.count()
        self._asking: dict[int, socket.socket] = {}
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(folder / "requests"))
        self._server.listen(64)
        threading.Thread(target=self._accept, name="requests", daemon=True).start()

    def answer(self, number: int, code: int) -> None:
        """Report a remote command's exit code to the program that asked for the command."""
        if (asking := self._asking.pop(number, None)) is not None:
            with suppress(OSError):
                asking.sendall(f"{code}\n".encode())
            asking.close()

    def close(self) -> None:
        """Stop listening and drop every open request."""
        self._server.close()
        for asking in list(self._asking.values()):
            asking.close()

    def _accept(self) -> None:
        while True:
            try:
                asking, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(asking,), name="command", daemon=True).start()

    def _serve(self, asking: socket.socket) -> None:
        with suppress(OSError, ValueError, KeyError):
            request = json.loads(asking.makefile("r").readline())
            number = next(self._numbers)
            self._asking[number] = asking
            self._link.send({"is": "command", "id": number, "host": request["host"], "command": request["command"]})
            asking.recv(1)  # returns when the program exits
            if self._asking.pop(number, None) is not None:
                self._link.send({"is": "command", "id": number, "host": request["host"], "command": None})


@contextmanager
def remote_shell(folder: Path, link: ParentLink) -> Iterator[dict[str, str]]:
    """Environment variables that make programs on this machine find our ``ssh``. ``folder``: the agent's."""
    script = folder / "ssh"
    path = os.pathsep.join(PROJECT)
    variables = f"PYTHONPATH={shlex.quote(path)} PYTHONSAFEPATH=1" if path else "PYTHONSAFEPATH=1"
    socket_path = shlex.quote(str(folder / "requests"))
    script.write_text(f'#!/bin/sh\nexec env {variables} {shlex.quote(sys.executable)} -m {SHELL} {socket_path} "$@"\n')
    script.chmod(0o700)
    requests = CommandRequests(folder, link)
    link.on_answer = requests.answer
    try:
        yield {"PATH": os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])}
    finally:
        link.on_answer = None
        requests.close()


class RemoteCommand(Ranks):
    """The executing side: the commands that other machines asked for."""

    def __init__(self, link: ParentLink, heartbeat: Heartbeat, environment: dict[str, str]):
        super().__init__(heartbeat)
        self._link, self._environment = link, environment
        self._processes: dict[int, Process] = {}

    def roots(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def running(self) -> bool:
        return True  # the parent decides when it is over

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (asked := self._link.next_command(min(0.05, seconds))) is not None or time.monotonic() < deadline:
            if asked is not None:
                self._take(asked)
            self._collect()

    def exit_codes(self) -> dict[int, int]:
        return {}  # they go to the program that asked for the commands

    def _take(self, asked: Message) -> None:
        """Start a command, or end one that nobody waits for. Main thread only: a child dies with its thread."""
        number = asked["id"]
        if asked["command"] is None:
            if (process := self._processes.pop(number, None)) is not None:
                end([process.pid], patience=0.0)
                process.poll()
            return
        program = Program(["sh", "-c", asked["command"]], self._environment)
        self._processes[number] = program.start(stdout=sys.stderr, stderr=sys.stderr)

    def _collect(self) -> None:
        for number, process in list(self._processes.items()):
            if (code := process.poll()) is not None:
                del self._processes[number]
                self._link.send({"is": "command done", "id": number, "code": code if code >= 0 else 128 - code})
