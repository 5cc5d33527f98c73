"""Starts agents: the one on the parent's machine as its child, the others through the remote shell."""

import os
import shlex
import sys
from pathlib import Path

from manyheads.launchers.causes import last_words
from manyheads.launchers.environment import PROJECT
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.processes import end
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.program import Program, ended_within

AGENT = "manyheads.launchers.nodes.node_agent"


class Started:
    """The process that started one machine's agent: the agent itself, or the remote shell. ``log``: its output."""

    def __init__(self, name: str, command: list[str], log: Path, *, speaks: bool):
        self.name, self.log = name, log
        with open(log, "ab", opener=no_link) as file:
            stdout = None if speaks else file  # the machine of rank 0
            self.process = Program(command).start(stdout=stdout, stderr=file)

    def failure(self) -> str | None:
        """Why the agent will not connect, as its process reported; None while it still may."""
        code = self.process.poll()
        if code is None:
            return None
        return last_words(self.log) or f"it ended with exit code {code}"

    def close(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the process to exit, then kill it."""
        ended_within(self.process, seconds)
        end([self.process.pid], patience=0)
        self.process.poll()


def agent_arguments(settings: NodeSettings, *, address: str, port: int, key: Path | None, name: str) -> list[str]:
    """The agent's arguments after ``python -m``, the same on every machine."""
    options = ["--address", address, "--port", str(port), "--name", name]
    options += ["--silence", f"{settings.silence:g}", *([] if key is None else ["--key", str(key)])]
    if settings.interface:
        options += ["--interface", settings.interface]
    return [AGENT, *options]


def start_here(arguments: list[str], name: str, log: Path) -> Started:
    """Start the agent of the parent's own machine, as its child."""
    return Started(name, [sys.executable, "-m", *arguments, "--beside-parent"], log, speaks=True)


def start_there(arguments: list[str], name: str, log: Path, *, shell: str, speaks: bool) -> Started:
    """Start the agent of another machine, which has this project in the same place, or installed."""
    typed = [part.replace("{host}", name) for part in shlex.split(shell)]
    return Started(name, [*typed, command_there(arguments)], log, speaks=speaks)


def command_there(arguments: list[str]) -> str:
    """The command line that starts an agent on another machine."""
    variables = {"PYTHONPATH": os.pathsep.join([*PROJECT, *filter(None, [os.environ.get("PYTHONPATH")])])}
    variables = {key: value for key, value in variables.items() if value} | {"PYTHONSAFEPATH": "1"}
    assignments = [f"{key}={value}" for key, value in variables.items()]
    command = shlex.join(["exec", "env", *assignments, sys.executable, "-m", *arguments])
    return f"cd {shlex.quote(os.getcwd())} && {command}"
