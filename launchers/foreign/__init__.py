"""launcher=foreign: torchrun, mpirun, srun or another launcher has started this process as one rank of several.

The process that composes the config is rank 0, and gives the others the frozen run (``meeting.py``); each of those then
becomes the same program that launcher=torchrun starts.
"""

import os
import time
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, ClassVar

from manyheads.launchers.causes import error_of, first_failure
from manyheads.launchers.environment import environment
from manyheads.launchers.foreign.meeting import Ask, Lead, Message
from manyheads.launchers.foreign.world import World
from manyheads.launchers.inline import Inline
from manyheads.launchers.job import Job
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.processes import POLL_SECONDS, gone_silently
from manyheads.runner.errors import ConfigurationError, Interrupted, Kind, RunFailed, warn
from manyheads.runner.machine import addresses
from manyheads.runner.machine.process import die_with_parent
from manyheads.runner.option.rules import AUTO, PLACE, either, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run.files import remove, write_whole
from manyheads.runner.run.heartbeat import FINISHED
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.run.run_folder import RunFolder

LEAD: ContextVar[Lead | None] = ContextVar("lead", default=None)  # of the command that this process runs
PASSED = ("MANYHEADS_", "TORCH_", "NCCL_")  # begin the names of variables that companions add for the ranks
CONTROLLERS = {"horovodrun": "gloo", "mpirun": "mpi"}  # of Horovod
LEAVING_SECONDS = 30.0  # that the others have after rank 0 is done
REPORT_SECONDS = 1.0  # until the report of a rank that has closed its connections must be there


class ForeignOption(LauncherOption):
    """Declares which launcher has started the ranks, and how many."""

    rules: ClassVar = {"world_size": either(whole(1), AUTO), "started_by": PLACE}
    derived: ClassVar[tuple[str, ...]] = ("world_size",)
    without_effect: ClassVar[tuple[str, ...]] = ("world_size", "started_by")
    world_size: int | str
    started_by: str | None

    @property
    def starter(self) -> str:
        return self.started_by or self.name

    @property
    def ranks(self) -> int:
        return self.nproc_per_node if isinstance(self.world_size, str) else self.world_size

    def resolved_keys(self) -> Section:
        return {"world_size": self.ranks}

    def device_number(self, local_rank: int, *, gpus: int) -> int:
        if gpus == 1:  # each rank is shown a GPU of its own, as by srun --gpus-per-task=1
            return 0
        return super().device_number(local_rank, gpus=gpus)

    @property
    def horovod_controller(self) -> str | None:
        return None if self.started_by is None else CONTROLLERS.get(self.started_by)


class Foreign(Inline):
    """Rank 0 of ranks that another launcher has started; if none has, they are started as by launcher=spawn."""

    grace = 10.0  # torchrun ends rank 0 some 30 s after another rank has failed

    def __init__(self, *, world_size: int, started_by: str | None, start_timeout: int, **options: Any):
        super().__init__(**options)
        self.is_spread = world_size != self.ranks
        self.ranks, self.started_by = world_size, started_by
        self.machines = {"": self.ranks} if self.is_spread else {}

    def launch(self, job: Job) -> None:
        lead = LEAD.get()
        if lead is None:
            self._launch_here(job)
            return
        die_with_parent()
        world = lead.world
        position = RankInfo(0, world.local_rank, world.size)
        here, variables = self._met(job, lead)
        reason: RunFailed | Interrupted | None = None
        try:
            self.train(here, position, variables)
        except (RunFailed, Interrupted) as error:
            reason = error
        if not isinstance(reason, RunFailed) and here.heartbeat.beats():
            await_others(here)
        if (cause := cause_of(here, reason)) is not None:
            raise cause from reason

    def _launch_here(self, job: Job) -> None:
        how = f"{self.started_by or 'no launcher'} has not started this process"
        if self.is_spread or (job.run is not None and job.run.parallel.name == "horovod"):
            raise ConfigurationError(
                f"launcher=foreign: {how}, and this run needs the {self.ranks} ranks that it starts. Type the command "
                f"after {self.started_by}, as when the run was started.",
                key="launcher",
            )
        warn(f"launcher=foreign: {how}; this machine's {self.ranks} ranks are started as by launcher=spawn")
        self.as_child_process().launch(job)

    def _met(self, job: Job, lead: Lead) -> tuple[Job, dict[str, str]]:
        """The job as it is watched from here, and the variables of rank 0, once all ranks have seen the run."""
        folder, usual = job.folder, environment(self)
        token = folder.logs / f".meeting-{lead.attempt}"
        passed = {name: value for name, value in job.environment.items() if name.startswith(PASSED)}
        order = {
            "folder": str(folder.path),
            "config": folder.config_content().decode(),
            "machine": lead.own.machine,
            "parent": os.getpid(),
            "token": token.name,
            "meeting": lead.meeting,
            "variables": {name: value for name, value in passed.items() if name not in usual},
        }
        write_whole(token, "")
        try:
            asks, seen = lead.publish(order, job.signals)
            check_storage(folder, job.run, seen)
            if job.run is not None and job.run.on_gpus:
                check_devices([lead.own, *asks])
        finally:
            remove(token)
        lead.go()
        here = [0, *sorted(ask.rank for ask in asks if ask.machine == lead.own.machine)]
        names = {ask.rank: f"rank {ask.rank} on {ask.host}" for ask in asks}
        name_of = names.__getitem__ if self.is_spread else job.name_of
        return replace(job, own=here, name_of=name_of), variables_of(lead.world, order)


def variables_of(world: World, order: Message) -> dict[str, str]:
    """The variables by which a rank finds its position and the others."""
    numbers = {"RANK": world.rank, "LOCAL_RANK": world.local_rank, "WORLD_SIZE": world.size}
    variables = {name: str(value) for name, value in {**numbers, "LOCAL_WORLD_SIZE": world.local_size}.items()}
    variables["MANYHEADS_MEETING"] = order["meeting"]
    if world.is_spread and world.address is not None:
        towards = addresses.resolved("MASTER_ADDR", world.address)
        if name := addresses.interface_of(addresses.own_address(None, towards=towards)):
            variables["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", name)
    return variables


def check_storage(folder: RunFolder, run: RunConfig | None, seen: list[Message]) -> None:
    """Say what is missing where machines do not share the run folder. Raises ConfigurationError if the run needs it."""
    for report in seen:
        if why := report.get("why"):
            raise ConfigurationError(f"{report['host']}: {why}", key="hydra.run.dir")
    apart = sorted({report["host"] for report in seen if not report.get("shares")})
    if not apart:
        return
    names = f"{', '.join(apart)} {'do' if apart[1:] else 'does'} not see {folder}"
    if folder.last_checkpoint.exists() or (run is not None and run.checkpoint.format == "sharded"):
        what = (
            "its last checkpoint, from which every rank resumes" if folder.last_checkpoint.exists() else "checkpoints"
        )
        raise ConfigurationError(
            f"{names}, and thus not {what}. Put it on storage that all machines share: hydra.run.dir.",
            key="hydra.run.dir",
        )
    warn(
        f"{names} of rank 0's machine: the logs of the ranks there stay there, and the run cannot be resumed. "
        "hydra.run.dir can name storage that all machines share."
    )


def check_devices(asks: list[Ask]) -> None:
    """Raises ConfigurationError if ranks on the same machine see only the same GPU."""
    first: dict[tuple[str, str], Ask] = {}
    for ask in asks:
        other = first.setdefault((ask.machine, ask.gpu), ask)
        if ask.gpu and other is not ask:
            raise ConfigurationError(
                f"{other} and {ask} see the same GPU, {ask.gpu}, and no other. Start one rank for each GPU, or set "
                "trainer.device=cpu.",
                key="trainer.device",
            )


def await_others(job: Job) -> None:
    """Wait until the other ranks on this machine have ended, or one of them has failed: they may need the store."""
    others = replace(job, own=job.watched[1:])
    deadline = time.monotonic() + LEAVING_SECONDS
    while any(job.heartbeat.state(rank) != FINISHED for rank in others.watched) and time.monotonic() < deadline:
        if gone_silently({}, others) or others.failures():
            return
        time.sleep(0.05)


def cause_of(job: Job, reason: RunFailed | Interrupted | None) -> RunFailed | ConfigurationError | Interrupted | None:
    """The failure of another rank on this machine that came before ``reason``, or led to it; else ``reason``."""
    is_lost = isinstance(reason, RunFailed) and reason.failure.kind is Kind.LOST_PEER
    if isinstance(reason, RunFailed) and not job.heartbeat.has_failed:
        job.heartbeat.report(reason.failure)
    others = replace(job, own=job.watched[1:])
    deadline = time.monotonic() + (REPORT_SECONDS if is_lost else 0.0)
    while not (silent := gone_silently({}, others)) and not others.failures() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if not silent and not others.failures():
        return reason
    failure = first_failure(job, {}, silent)
    return reason if failure is None or failure.rank == 0 else error_of(failure)
