"""A node's part of a run: starts its ranks on the parent's order, watches them, and ends them if the parent is gone."""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event

from manyheads.launchers.agent_program import run_agent
from manyheads.launchers.environment import folders
from manyheads.launchers.job import Job
from manyheads.launchers.nodes.link import ParentLink
from manyheads.launchers.nodes.shared_folder import check_storage
from manyheads.launchers.nodes.wire import MOST_BYTES, Message
from manyheads.launchers.processes import dump_stacks, gone_silently
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed, complain
from manyheads.runner.machine import addresses
from manyheads.runner.machine.process import in_background
from manyheads.runner.option.locate import load
from manyheads.runner.run import scratch
from manyheads.runner.run.heartbeat import FAILED, PLACE, Heartbeat, Report
from manyheads.runner.run.rank_info import without_place
from manyheads.runner.run.run_folder import RunFolder

STATUS_SECONDS = 0.2
DEVICES, INTERFACES = "CUDA_VISIBLE_DEVICES", ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


class PartEnded(RunFailed):
    """The parent has ended the run, or is gone."""


@dataclass(frozen=True)
class Here(Job):
    """The run as this node sees it: a job with this node's ranks alone."""

    link: ParentLink = field(default=None)  # type: ignore[assignment]
    attempt: int = 0

    def check_timeout(self) -> None:
        """Raises PartEnded if the parent has ended the run or is gone; the parent itself enforces the time limit."""
        if self.link.is_over(self.attempt):
            raise PartEnded(Failure(Kind.PARENT_ENDED, message=self.link.why))
        if stop := self.link.stop_signal(self.attempt):
            self.heartbeat.stop_signal = stop


def attempt(order: Message, link: ParentLink, signals: list[int]) -> Message:
    """Start this node's ranks as the parent orders, and return the message that reports how they ended."""
    ranks = range(order["first"], order["first"] + order["count"])
    folder = RunFolder(order["folder"])
    codes: dict[int, int | None] = {}
    heartbeat: Heartbeat | None = None
    failure: Failure | None = None
    reports: list[Report] = []
    try:
        check_storage(folder, order)
        with scratch.own_folder(Path(f"{order['scratch']}{ranks.start}")) as rank_folder:
            heartbeat = Heartbeat.create(rank_folder / "heartbeat", ranks=order["ranks"])
            common = folder, order["ranks"], order["environment"], heartbeat, signals
            job = Here(*common, own=ranks, link=link, attempt=order["attempt"], reports=heartbeat.reports)
            link.on_where = partial(dump_stacks, heartbeat)
            with in_background(partial(speak, job), name="status"):
                try:
                    start(order, job, codes, rank_folder)
                finally:
                    link.on_where = None
                    reports = shortened(heartbeat.reports())
    except PartEnded as reason:
        complain(str(reason.failure.message))
    except RunFailed as error:
        failure = error.failure
    except Interrupted:
        pass
    except (OSError, ConfigurationError) as error:
        failure = Failure.of(error)
    told = {str(rank): code for rank, code in codes.items()}
    words = {str(rank): heartbeat.read(rank) for rank in ranks} if heartbeat else {}
    content = failure.to_json() if failure else None
    common_words = {"words": words, "reports": reports, "attempt": order["attempt"]}
    return {"failure": content, "codes": told, **common_words}


def start(order: Message, job: Here, codes: dict[int, int | None], folder: Path) -> None:
    """Start the ordered ranks and watch them until they end. Raises as ``launchers.processes.supervise`` does.

    The order names the launcher's own functions: ``run_part``, if it starts the ranks itself, or else ``exit_codes``,
    which finds them in its program's output.
    """
    variables = {**rank_variables(job.environment, address=order["address"]), PLACE: order["scratch"]}
    if "run_part" in order:
        environment = {**without_place(os.environ), **variables}
        load(order["run_part"])(
            order, job, environment, folder=folder, note=lambda cause: job.link.send({"is": "restart", "cause": cause})
        )
        return

    def read_exit_codes(text: str) -> dict[int, int]:
        parsed = load(order["exit_codes"])(text)
        codes.update(parsed)
        return parsed

    run_agent(
        filled(order["command"], folder),
        job,
        environment={**without_place(os.environ), **variables, "MANYHEADS_PARENT": str(os.getpid())},
        log=job.folder.logs / order["log"],
        read_exit_codes=read_exit_codes,
        stall_timeout=math.inf,  # the parent detects stalls: these ranks may wait for another node's
    )


def filled(command: list[str], folder: Path) -> list[str]:
    """The command, completed with the paths that only this machine knows."""
    for name, value in {"{scratch}": str(folder), "{python}": sys.executable}.items():
        command = [part.replace(name, value) for part in command]
    return command


def rank_variables(ordered: Mapping[str, str], *, address: str) -> dict[str, str]:
    """The variables of this node's ranks, beside its own. ``ordered``: those of the parent; ``address``: of this node.

    Devices are this node's own if it has a choice of them, or is allocated by Slurm, which makes one if it has to.
    Ranks are bound to the interface with the address, unless this node or the parent's user names another one.
    """
    kept = {**ordered}
    if DEVICES in os.environ or "SLURM_JOB_ID" in os.environ:
        kept.pop(DEVICES, None)
    name = addresses.interface_of(address)
    detected = {} if name is None else dict.fromkeys(INTERFACES, name)
    named = {variable: os.environ[variable] for variable in INTERFACES if variable in os.environ}
    return {**detected, **kept, **folders(), **named}


def speak(job: Here, done: Event) -> None:
    """Keep reporting the ranks' state to the parent, without touching shared disks, which may hang."""
    told = 0
    while not done.wait(STATUS_SECONDS):
        words = {str(rank): job.heartbeat.read(rank) for rank in job.watched if job.heartbeat.pid(rank)}
        failed = sum(job.heartbeat.state(rank) == FAILED for rank in job.watched)  # which have written a report
        reports = shortened(job.reports()) if job.reports and failed > told else []
        told = failed
        job.link.send({"is": "status", "words": words, "gone": gone_silently({}, job), "reports": reports})


def shortened(reports: list[Report]) -> list[Report]:
    """The reports, shortened to fit into one message."""
    most = MOST_BYTES // 16 // max(1, len(reports))
    texts = "message", "traceback"
    kept = [{name: content for name, content in report.items() if len(str(content)) <= most} for report in reports]
    return [
        {**short, **{name: str(report.get(name, ""))[-most:] for name in texts}}
        for short, report in zip(kept, reports, strict=True)
    ]
