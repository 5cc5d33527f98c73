"""Declarations of a launcher: how many ranks it starts, and for which strategies."""

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Protocol

from manyheads.launchers.launcher import Launcher
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.option.locate import load
from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import (
    AUTO,
    COMPUTE,
    DURATION,
    PLACE,
    KeyKind,
    Tunable,
    always,
    choice,
    either,
    list_of,
    never,
    number,
    powers_of_two,
    text,
    whole,
)
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run.hosts import count_nodes, read_hosts
from manyheads.runner.run.run_folder import RunFolder

FREE = "free"
ROOM = "manyheads.launchers.companions.room"  # what finds devices that no other run uses
FEWEST_AND_MOST = text("fewest:most", r"\d+:\d+")
DECIDED = text("auto or measure, or auto:4 for at most 4", r"(auto|measure)(:[1-9]\d*)?")


def _ranks(run: RunConfig) -> Sequence[int] | str:
    """Powers of two up to the number of devices, if the batch divides among them; or why only one value is possible."""
    if run.parallel.one_process or run.launcher.one_process:
        return "everything runs in one process; choose a parallel= with several ranks"
    if run.launcher.machines:
        return "launcher.hosts or launcher.hostfile says how many ranks each machine has"
    most = len(hardware.gpu_names()) if run.on_gpus else hardware.cpu_cores()
    return [count for count in powers_of_two(most, least=2) if run.fits(count)]


def _threads(run: RunConfig) -> Sequence[int] | str:
    return (
        "the devices are GPUs" if run.on_gpus else powers_of_two(hardware.cores_for_each(run.launcher.nproc_per_node))
    )


class Standing(NamedTuple):
    """The status of a run with its engine. ``status``: as in a list of runs; ``text``: a sentence."""

    status: str
    text: str


class Ahead(Protocol):
    """What can start before the config is composed, since ranks will need it."""

    def begin(self) -> None:
        """Start it; ``Launcher.prepare`` then tells it what the ranks get."""

    def end_waiting(self) -> None:
        """End it if it was told nothing."""


class LauncherOption(Option):
    """Starts ranks that communicate through torch.distributed. ``one_process``: there is only one rank.

    ``finds_machines``: an engine chooses the machines, and ``nodes`` is only their number. ``restarts_ranks``: a rank
    that dies is restarted, and does not stop the others. ``first_output``: the log that
    grows once an engine has found room for the run; None: the run uses this machine's devices.
    """

    rules: ClassVar = {
        "nproc_per_node": either(whole(1), AUTO),
        "threads_per_rank": either(whole(1), DECIDED),
        "stall_timeout": number(above=0),
        "timeout": number(above=0),
        "wait_policy": choice("auto", "default", "brief", "active", "passive"),
        "devices": choice("any", FREE),
        "wait": DURATION,
        "hosts": list_of(PLACE),
        **dict.fromkeys(("hostfile", "arguments", "rendezvous", "remote_shell", "network_interface"), PLACE),
        "nodes": either(whole(1), FEWEST_AND_MOST).of_kind(KeyKind.PLACE),
        "node_timeout": number(at_least=2),
        "start_timeout": whole(1),
        "max_restarts": whole(0),
    }
    without_effect: ClassVar[tuple[str, ...]] = (
        *("stall_timeout", "timeout", "wait_policy", "numa", "devices", "wait"),
        *("rendezvous", "remote_shell", "network_interface"),
        *("node_timeout", "start_timeout", "max_restarts"),
    )
    derived: ClassVar[tuple[str, ...]] = ("threads_per_rank", "wait_policy")
    tunable: ClassVar = {
        "nproc_per_node": Tunable(COMPUTE, _ranks),
        "threads_per_rank": Tunable(COMPUTE, _threads),
        "wait_policy": Tunable(COMPUTE, always("default", "brief")),
        "numa": Tunable(COMPUTE, never("ranks are bound to the cores near their devices where that matters")),
    }
    group = "launcher"
    has_own_class = True
    one_process: ClassVar[bool] = False
    finds_machines: ClassVar[bool] = False
    restarts_ranks: ClassVar[bool] = False
    first_output: ClassVar[str | None] = None
    nproc_per_node: int  # "auto" until the machine has been examined, like the next two
    threads_per_rank: int  # the most, where the ranks decide
    wait_policy: str = "default"
    numa: bool = False
    timeout: float | None
    devices: str = "any"
    wait: float | str | None = None
    hosts: Sequence[str] | None = None
    hostfile: str | None = None
    nodes: int | str | None = None
    rendezvous: str | None = None

    def __init__(self, section: Section, *, key: str | None = None):
        super().__init__(section, key=key)
        by, _, most = str(section.get("threads_per_rank")).partition(":")
        self.threads_by = by if by in ("auto", "measure") else None  # the ranks decide, by a rule or by measuring
        if most:
            self.threads_per_rank = int(most)

    @property
    def machines(self) -> dict[str, int]:
        """Ranks on each host that is named; empty: this machine alone. Raises ConfigurationError."""
        return read_hosts(self.hosts, self.hostfile)

    @property
    def is_here(self) -> bool:
        """Whether all ranks run on this machine, on devices that no engine has chosen."""
        several = self.machines or self.nodes is not None or self.rendezvous is not None
        return not (several or self.finds_machines or self.first_output)

    @property
    def takes_free_devices(self) -> bool:
        """Whether the run chooses its devices itself when it starts, and may wait for them."""
        return self.devices == FREE

    @property
    def starter(self) -> str:
        """What starts the ranks, as people read it."""
        return self.name

    @property
    def ranks(self) -> int:
        """The number of ranks on all machines; the highest one if the number of machines may change."""
        machines = self.machines
        return self.nproc_per_node * max(1, len(machines), (count_nodes(self.nodes, machines) or (1, 1))[1])

    def resolved_keys(self) -> Section:
        if self.hostfile is None:
            return {}
        return {"hostfile": os.path.abspath(os.path.expanduser(self.hostfile))}  # to resume from another directory

    def check_keys(self) -> None:
        if not self.finds_machines:
            self._check_machines()
        if not self.takes_free_devices:
            if self.wait is not None:
                raise ConfigurationError.at("launcher.wait", self.wait, " has no effect. Set launcher.devices=free.")
        elif not self.is_here:
            raise ConfigurationError.at(
                "launcher.devices", FREE, " works on this machine only, without launcher.hosts and the like."
            )
        elif importlib.util.find_spec(ROOM) is None:
            raise ConfigurationError.at("launcher.devices", FREE, f": this installation has no {ROOM}.")

    def _check_machines(self) -> None:
        """Raises ConfigurationError for machines without a meeting point, and for an invalid number of machines."""
        hosts, given, rendezvous = self.machines, self.nodes, self.rendezvous
        if given is None:
            if rendezvous is not None:
                raise ConfigurationError(
                    "launcher.rendezvous needs launcher.nodes, the number of machines that meet there.",
                    key="launcher.rendezvous",
                )
            return
        if not hosts and rendezvous is None:
            raise ConfigurationError.at(
                "launcher.nodes",
                given,
                ": the machines have no meeting point. Set launcher.rendezvous=<host>:<port> "
                "and type the command on each, or set launcher.hosts=[node1:4,node2:4].",
            )
        if hosts and rendezvous is not None:
            raise ConfigurationError(
                "launcher.rendezvous: launcher.hosts is set too. Set one of them to null.", key="launcher.rendezvous"
            )
        low, high = count_nodes(given, hosts) or (0, 0)
        if not 0 < low <= high or (hosts and high != len(hosts)):
            also = f", or with launcher.hosts the number listed there: {len(hosts)}" if hosts else ""
            raise ConfigurationError.at(
                "launcher.nodes", given, f" is not allowed. Allowed: a number, or fewest:most{also}."
            )

    @contextmanager
    def on_its_machines(self, run: RunConfig) -> Iterator[RunConfig]:
        """A context in which ``machine.hardware`` describes the machines on which the ranks will run.

        Yields the config in which the keys that depend on these machines are resolved. Raises ConfigurationError.
        """
        yield run

    def gpus_here(self, count: int) -> int:
        """How many of this machine's GPUs a run with ``count`` ranks per machine uses."""
        return count

    def device_number(self, local_rank: int, *, gpus: int) -> int:
        """The number of the GPU that a rank computes on, among the ``gpus`` that its process sees."""
        return local_rank // hardware.ranks_per_gpu()

    def ahead(self, *, in_sweep: bool) -> Ahead | None:
        """What can start before the config is composed if this launcher was typed; None if nothing can."""
        return None

    def bind_rank(self, local_rank: int, *, on_gpus: bool) -> None:
        """Bind this process, a rank, and the loader processes that it will start to the cores near its device."""
        if not (self.numa and hasattr(os, "sched_setaffinity")):
            return
        from manyheads.runner.machine.numa import near  # few runs need it

        if cores := near(self._gpus_of_ranks(on_gpus=on_gpus))[local_rank]:
            os.sched_setaffinity(0, cores)

    def arguments(self, *without: str) -> dict[str, Any]:
        return {**super().arguments(*without), "threads_per_rank": self.threads_per_rank}

    def divided_cores(self, *, on_gpus: bool) -> Section:
        """Threads, and how they wait. On CPUs ranks choose from 1 to these, as they know the model: loop/threads.py."""
        most: int | str = self.threads_per_rank
        most = self.cores_for_each(on_gpus=on_gpus) if isinstance(most, str) else most
        threads = f"{self.threads_by}:{most}" if self.threads_by and most > 1 and not on_gpus else most
        policy = "default" if self.nproc_per_node * most <= hardware.cpu_cores() else "brief"
        return {"threads_per_rank": threads, "wait_policy": policy if self.wait_policy == "auto" else self.wait_policy}

    def decided_threads(self, *about: Any, measures: bool) -> list[Any]:
        """What ``loop.threads.decided`` returns; nothing if the number is set. For ranks."""
        if self.threads_by is None:
            return []
        by = "measure" if measures and self.threads_by == "measure" else "auto"
        return load("manyheads.runner.loop.threads.decided")(*about, by=by, most=self.threads_per_rank)

    def cores_for_each(self, *, on_gpus: bool) -> int:
        """Number of cores for each rank of a machine, at least 1: of those to which it will be bound with others."""
        if on_gpus and self.numa and hardware.is_here() and hasattr(os, "sched_setaffinity"):
            from manyheads.runner.machine import numa  # few commands need it

            gpus = self._gpus_of_ranks(on_gpus=True)
            if None not in gpus and (bound := numa.cores_for_each(gpus)):
                return bound
        return hardware.cores_for_each(self.nproc_per_node)

    def _gpus_of_ranks(self, *, on_gpus: bool) -> list[int | None]:
        """The driver's index of the GPU of each rank of this machine; None for ranks on CPUs."""
        count = len(hardware.gpu_ids()) if on_gpus else 0
        numbers = [self.device_number(rank, gpus=count) for rank in range(self.nproc_per_node)]
        return [hardware.gpu_index(number) if on_gpus else None for number in numbers]

    def is_met_elsewhere(self) -> bool:
        """Whether the command typed here joins a run whose parent is on another machine. Raises ConfigurationError.

        If the launcher finds its machines itself, the first of srun's tasks is the parent.
        """
        if self.rendezvous is None:
            return self.finds_machines and int(os.environ.get("SLURM_PROCID", "0")) != 0
        from manyheads.runner.machine.addresses import is_own, parse_endpoint, resolved  # few runs need it

        host, _ = parse_endpoint("launcher.rendezvous", str(self.rendezvous))
        return not is_own(resolved("launcher.rendezvous", host))

    def started(self, *, apart: bool) -> "Launcher":
        """The launcher. ``apart``: none of its ranks is this process. Raises ConfigurationError."""
        launcher: Launcher = self.kind(name=self.name, **self.arguments())
        launcher = launcher.as_child_process() if apart else launcher
        return launcher if launcher.settings is None else self._several_machines().around(launcher)

    def join(self, digests: dict[str, str]) -> None:
        """Take part, until it ends, in a run whose parent is on another machine. Raises as that does.

        ``digests``: of the config, ``RunConfig.digests``.
        """
        self._several_machines().join(self, digests)

    @staticmethod
    def _several_machines() -> ModuleType:
        from manyheads.launchers.wrappers import several_machines  # few runs need it

        return several_machines()

    def standing(self, folder: RunFolder, answers: dict[str, Any]) -> Standing | None:
        """The status of a run that has not completed; None if it stands only in the run's folder.

        ``answers``: kept by the caller for all runs of a list, so that an unreachable engine is asked once.
        """
        return None

    @property
    def horovod_controller(self) -> str | None:
        """How Horovod's ranks coordinate, "gloo" or "mpi"; None if the launcher does not start Horovod."""
        return None
