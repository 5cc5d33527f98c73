"""launcher=horovodrun: Horovod's own launcher, over Gloo or through mpirun.

Source: https://horovod.readthedocs.io/en/stable/running.html. Its exit code is 1 for every failure; the exit code of
the rank that failed first is in its output.
"""

import re
import socket
import sys
from typing import Any, ClassVar

from manyheads.launchers import mpirun
from manyheads.launchers.job import Job
from manyheads.runner.errors import Unavailable
from manyheads.runner.machine import addresses
from manyheads.runner.option.rules import choice
from manyheads.runner.option.tree import Section
from manyheads.runner.parallel import horovod_installation as horovod
from manyheads.runner.run.rank_info import EXPORTED

# By default horovodrun writes all its environment variables into the ranks' command lines, which every user of the
# machine can read while they train. Ranks on its own machine inherit the variables anyway.
PROGRAM = (
    "import manyheads, runpy, sys; from horovod.runner.common.util import env; "
    "env.IGNORE_REGEXES.add(f'(?!({sys.argv.pop(1)})$)'); "
    "runpy.run_module('horovod.runner.launch', run_name='__main__', alter_sys=True)"
)
ADDED = ("PYTHONUNBUFFERED",)  # by horovodrun
_ENDED = re.compile(r"Process (\d+) exit with status code (\d+)")


class HorovodrunOption(mpirun.OneMachineOption):
    """Declares that Horovod is needed, for any strategy."""

    by_user = "MASTER_ADDR={first} horovodrun -np {count} -H {hosts}"

    rules: ClassVar = {
        "controller": choice("auto", "gloo", "mpi"),
    }
    controller: str

    def unavailable(self) -> str | None:
        return horovod.unavailable()

    def note(self) -> str:
        return f"built with {horovod.built_with()} for torch {horovod.built_for()}"

    def resolved_keys(self) -> Section:
        controller = horovod.controllers()[0] if self.controller == "auto" else self.controller
        return {**super().resolved_keys(), "controller": controller}

    def check_keys(self) -> None:
        super().check_keys()
        if self.controller not in horovod.controllers():
            horovod.refuse_controller(f"launcher.controller={self.controller}", self.controller)
        if self.controller == "mpi" and (reason := horovod.without_mpirun()):
            raise Unavailable.at("launcher.controller", "mpi", f": {reason}, or launcher.controller=gloo.")

    @property
    def horovod_controller(self) -> str:
        return self.controller


class Horovodrun(mpirun.OneMachine):
    """Runs horovodrun; ``start_timeout``: seconds within which all ranks must start."""

    program = "horovodrun"

    def __init__(self, *, controller: str, network_interface: str | None, start_timeout: int, **options: Any):
        super().__init__(**options)
        self.controller, self.start_timeout = controller, start_timeout
        self.network_interface = network_interface or "lo"

    def launch(self, job: Job) -> None:
        is_horovod = job.run is not None and job.run.parallel.name == "horovod"
        if is_horovod and self.controller == "gloo":  # whose ranks would die without an error
            addresses.resolved("launcher=horovodrun needs this machine's name", socket.gethostname())
        super().launch(job)

    def _command(self, job: Job, environment: dict[str, str], added: dict[str, str]) -> list[str]:
        options = ["-np", str(job.ranks), f"--{self.controller}", "--start-timeout", str(self.start_timeout)]
        options.append("--disable-cache")  # in the home, which may be read-only
        if self.machines:
            options += ["-H", ",".join(f"{host}:{slots}" for host, slots in self.machines.items())]
        options += ["--network-interfaces", self.network_interface]
        worker = [sys.executable, "-m", job.main, str(job.folder.path)]
        few = "|".join([EXPORTED.pattern, *sorted({*added, *ADDED})])
        return [sys.executable, "-c", PROGRAM, few, *options, *self.arguments, *worker]

    def _exit_codes(self, text: str) -> dict[int, int]:
        return exit_codes(text)


def exit_codes(text: str) -> dict[int, int]:
    """The exit codes of all ranks that failed; negative: minus the signal that killed it (a shell adds 128 instead)."""
    codes = {int(rank): int(code) for rank, code in _ENDED.findall(text)} | mpirun.exit_codes(text)
    return {rank: 128 - code if code > 128 else code for rank, code in codes.items()}
