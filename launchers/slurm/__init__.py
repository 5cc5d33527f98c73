"""launcher=slurm: outside a Slurm job it submits one and follows it; inside a job it starts the ranks on its nodes.

Both are the same run: the job's script resumes the run folder, and then finds itself inside an allocation.
"""

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from manyheads.launchers import warm_server
from manyheads.launchers.agent_program import GrowingOutput
from manyheads.launchers.causes import error_of
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.result import finish
from manyheads.launchers.slurm import slurm_commands
from manyheads.launchers.slurm.allocation import Allocation
from manyheads.launchers.slurm.batch_script import output, script, write_script
from manyheads.launchers.slurm.following import Following, ended_badly, last_line, note_job, refuse_queued
from manyheads.launchers.torchrun import order
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed, complain
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder

log = logging.getLogger(__name__)
# A step of one task on one node, with all that the job has of the node, beside other steps.
STEP = (
    "--quiet --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist={host} --overlap --cpu-bind=none --mpi=none "
    "--input=none"
)
KEYS = (
    *("gpus_per_node", "cpus_per_node", "partition", "account", "qos", "constraint", "time_limit", "stop_before"),
    *("requeue", "follow", "lines", "template", "srun", "nodes"),
    *("network_interface", "node_timeout", "start_timeout", "max_restarts"),
)


class Slurm(Launcher):
    """Submits runs to Slurm, or runs them in an allocation. ``settings``: of this allocation; None outside of one."""

    def __init__(self, **options: Any):
        self._section = {key: options.pop(key) for key in KEYS}
        super().__init__(**options)
        self._allocation = Allocation.here()
        self._at_limit = self._is_apart = False
        self._nodes = self._section["nodes"]
        if self._allocation is not None:
            self.settings = self._settings(self._allocation)
            self.machines = dict.fromkeys(self.settings.hosts, self.ranks)
        self.ranks *= self._nodes

    def as_child_process(self) -> Launcher:
        self._is_apart = True
        return self

    @property
    def is_elsewhere(self) -> bool:
        return self._allocation is None

    def refuse_early(self, run: RunConfig, environment: Mapping[str, str]) -> None:
        warm_server.check_once(run, environment)

    def launch_on_machines(self, job: Job, run: Callable[..., None]) -> None:
        assert self._allocation is not None  # only a job in the queue starts ranks
        job.added["slurm"] = {"job": self._allocation.job, "restarts": self._allocation.restarts}
        self._checkpoint = _newest(job.folder)
        with self._stopping_at_limit(job):
            run(self.settings, job, order, stall_timeout=self.stall_timeout)

    def launch_elsewhere(self, folder: RunFolder, run: RunConfig, signals: list[int]) -> ResultJson:
        if self._is_apart and not self._section["follow"]:
            raise ConfigurationError.at("launcher.follow", False, ": a sweep follows its jobs. Set it to true.")
        with folder.locked():
            refuse_queued(folder, signals)
            pinned = folder.pin_config()
            folder.clear_attempt()
            try:
                text = write_script(folder, run.launcher.section, name=run.name, pinned=pinned)
                written = GrowingOutput(output(folder))
                job = slurm_commands.submit(text, script(folder), signals)
            except (RunFailed, ConfigurationError, Interrupted) as reason:
                finish(folder, run.as_planned, 0.0, reason)
                raise
            note_job(folder, job)
        print(f"submitted as Slurm job {job} by {script(folder)}; its output is in {output(folder)}", flush=True)
        log.info("%s: Slurm job %s", folder, job)
        if not self._section["follow"]:
            return {"status": "queued", "objective": None}
        try:
            status = Following(folder, job, written, signals).to_the_end()
        except Interrupted as reason:
            self._finish(folder, run, job, reason)
            raise
        return self._outcome(folder, run, job, status, signals)

    def ended(self, folder: RunFolder, reason: BaseException) -> None:
        """Requeue this job if the run was cut short by something outside itself."""
        is_lost = isinstance(reason, RunFailed) and reason.failure.kind is Kind.NODE_LOST
        if self._allocation is None or not self._allocation.is_ours or not (self._at_limit or is_lost):
            return
        if not self._section["requeue"]:
            return
        if _newest(folder) == self._checkpoint:
            complain("this job is not requeued: it has written no checkpoint, so another attempt would get no further.")
        elif (why := slurm_commands.requeue(self._allocation.job)) is not None:
            complain(f"Slurm does not requeue job {self._allocation.job}: {why}. Resume the run manually.")
        else:
            print(f"job {self._allocation.job} is requeued and will resume from the last checkpoint", flush=True)

    def _outcome(
        self, folder: RunFolder, run: RunConfig, job: str, status: slurm_commands.Status, signals: list[int]
    ) -> ResultJson:
        """The result of the run, now that its job is over. Raises RunFailed, ConfigurationError or Interrupted."""
        if (completed := folder.completed()) is not None:
            return completed
        result = folder.read_result()
        if signals:
            reason = Interrupted(signals[0])
            if result is None:
                self._finish(folder, run, job, reason)
            raise reason
        has_run = result is not None or folder.steps.exists()
        failure = ended_badly(job, status, last_line(folder), has_run=has_run)
        if failure is not None:
            self._finish(folder, run, job, RunFailed(failure))
        elif result is not None and (failure := Failure.from_json(result.get("error"))) is None:
            raise Interrupted(int(result.get("signal", signal.SIGTERM)))
        assert failure is not None
        raise error_of(failure)

    def _finish(self, folder: RunFolder, run: RunConfig, job: str, reason: BaseException) -> None:
        wall_seconds = (folder.read_result() or {}).get("wall_seconds") or 0.0
        finish(folder, run.as_planned, wall_seconds, reason, {"slurm": {"job": job}})

    @contextmanager
    def _stopping_at_limit(self, job: Job) -> Iterator[None]:
        """A context in which Slurm's signal that the time limit is near stops the run, with a checkpoint."""

        def note(_: int, __: FrameType | None) -> None:
            self._at_limit = True
            if not job.signals:
                print("the job's time limit is near: stopping with a checkpoint", flush=True)
                job.signals.append(signal.SIGTERM)

        before = signal.signal(signal.SIGUSR1, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, before)

    def _settings(self, allocation: Allocation) -> NodeSettings:
        places = dict(list(allocation.nodes().items())[: self._nodes])
        settings = NodeSettings.of({**self._section, "nproc_per_node": self.ranks, "nodes": len(places)})
        assert settings is not None
        shell = f"{self._section['srun']} {STEP} sh -c"
        return replace(settings, hosts=list(places), shell=shell, addresses=places)


def _newest(folder: RunFolder) -> float:
    """When the last checkpoint was written; 0 if there is none."""
    path = folder.last_checkpoint
    return path.stat().st_mtime if path.exists() else 0.0
