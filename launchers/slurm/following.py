"""The Slurm job of a run: recorded, so that it is not submitted twice; followed to its end; and its status."""

import signal
import time
from collections.abc import Sequence
from typing import Any

from manyheads.launchers.agent_program import GrowingOutput
from manyheads.launchers.causes import last_words
from manyheads.launchers.launcher_option import Standing
from manyheads.launchers.slurm import slurm_commands
from manyheads.launchers.slurm.batch_script import output
from manyheads.launchers.slurm.slurm_commands import GONE, Absence, Status
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed, printable_text
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder

AWAY = "Slurm"  # key in a listing's answers: Slurm could not be asked
LOOK_SECONDS = 0.2
ASK_SECONDS = 0.5, 10.0  # between two queries to the controller: at first, and later
END_SECONDS = 90.0  # within which a cancelled job must be gone


def note_job(folder: RunFolder, job: str) -> None:
    """Write the number of a run's job into its folder."""
    folder.write_json(folder.path / "slurm.json", {"job": job})


def noted_job(folder: RunFolder) -> str | None:
    """The number of the last job that was submitted for a run."""
    try:
        content = read_json(folder.path / "slurm.json")
    except (OSError, ValueError):
        return None
    job = content.get("job") if isinstance(content, dict) else None
    return job if isinstance(job, str) and job.replace("_", "").isdigit() else None


def refuse_queued(folder: RunFolder, signals: Sequence[int]) -> None:
    """Raises ConfigurationError if the run's job is still queued or running; else as ``slurm_commands.status``.

    Prints how a job ended that has left no result.
    """
    if (job := noted_job(folder)) is None:
        return
    status = slurm_commands.status(job, signals)
    if not status.is_over:
        raise ConfigurationError(
            f"{folder} is already in the queue: job {job} {status}. Wait for it, or end it with `scancel {job}`."
        )
    if not folder.result.exists():
        print(printable_text(_standing(folder, job, status).text), flush=True)


def standing(folder: RunFolder, answers: dict[str, Any]) -> Standing | None:
    """The status of the run's job, as ``LauncherOption.standing``; after one query without an answer, none follows."""
    if (job := noted_job(folder)) is None:
        return None
    can_ask = AWAY not in answers and slurm_commands.missing() is None
    status = slurm_commands.status_now(job, seconds=slurm_commands.SHORT_SECONDS) if can_ask else None
    if status is None:
        answers[AWAY] = True
        return Standing("interrupted", f"Slurm cannot be asked from here about job {job}")
    return _standing(folder, job, status)


def _standing(folder: RunFolder, job: str, status: Status) -> Standing:
    if not status.is_over:
        return Standing("queued" if status.is_waiting else "running", f"job {job} {status}")
    if status == GONE:
        return Standing("interrupted", f"Slurm no longer knows job {job}, which left no result")
    failure = ended_badly(job, status, last_line(folder), has_run=folder.steps.exists())
    return Standing("failed", failure.message) if failure else Standing("interrupted", f"job {job} {status}")


class Following:
    """Follows one job. ``signals``: received by this process; the first asks the job to stop, a second ends it."""

    def __init__(self, folder: RunFolder, job: str, output: GrowingOutput, signals: list[int]):
        self._folder, self._job, self._output, self._signals = folder, job, output, signals
        self._passed_on = 0
        self._said = ""
        self._absence = Absence(())

    def to_the_end(self) -> Status:
        """Follow the job and return how it ended. Raises Interrupted if a signal has ended it, once it is gone."""
        asked, pause = 0.0, ASK_SECONDS[0]
        while True:
            self._output.pass_on()
            now = time.monotonic()
            has_result = self._folder.result.exists()
            if now - asked > (ASK_SECONDS[0] if has_result or self._signals else pause):
                asked, pause = now, min(1.2 * pause, ASK_SECONDS[1])
                status = slurm_commands.status_now(self._job)
                if status is None:
                    self._without_answer()
                    continue
                self._absence.ended()
                self._say(status)
                if status.is_over:
                    self._output.pass_on()
                    return status
                self._heed(status)
            time.sleep(LOOK_SECONDS)

    def _say(self, status: Status) -> None:
        if (line := f"job {self._job} {status}") != self._said and not status.is_over:
            self._said = line
            print(printable_text(line), flush=True)

    def _without_answer(self) -> None:
        """Called if the controller does not answer. Raises RunFailed if it is needed, because the job should end."""
        self._absence.unanswered("the job continues without it")
        if len(self._signals) > 1:
            why = f"Slurm's controller does not answer, so job {self._job} is not cancelled. Use `scancel {self._job}`."
            raise RunFailed(Failure(Kind.UNREACHABLE, message=why))

    def _heed(self, status: Status) -> None:
        """Pass new signals on to the job."""
        count = len(self._signals)
        if count == self._passed_on:
            return
        if count > 1 or status.state != "RUNNING":
            cancelled(self._job)
            self._output.pass_on()
            raise Interrupted(self._signals[0])
        if slurm_commands.ask_to_stop(self._job, signal.Signals(self._signals[0]).name.removeprefix("SIG")):
            self._passed_on = count


def cancelled(job: str) -> None:
    """Cancel a job and return when it is gone. Raises RunFailed if it stays."""
    deadline = time.monotonic() + END_SECONDS
    while (status := slurm_commands.status_now(job)) is None or not status.is_over:
        slurm_commands.cancel(job)
        if time.monotonic() > deadline:
            message = f"job {job} was cancelled, but still exists. See squeue."
            raise RunFailed(Failure(Kind.UNREACHABLE, message=message))
        time.sleep(ASK_SECONDS[0])


def last_line(folder: RunFolder) -> str:
    """The last line that a run's job has written; empty if there is none."""
    try:
        return last_words(output(folder))
    except OSError:
        return ""


def ended_badly(job: str, status: Status, message: str, *, has_run: bool) -> Failure | None:
    """What Slurm did to a job, as a failure; None if it let the job end. ``message``: the last line of its output."""
    before = "" if has_run else " before it started"
    whys = {
        "CANCELLED": (Kind.CANCELLED, f"was cancelled{before}"),
        "TIMEOUT": (Kind.TIMED_OUT, "reached its time limit. Set launcher.time_limit, or launcher.stop_before higher"),
        "DEADLINE": (Kind.TIMED_OUT, "reached its deadline"),
        "OUT_OF_MEMORY": (Kind.OUT_OF_MEMORY, "was killed for using more memory than it had requested"),
        "NODE_FAIL": (Kind.NODE_LOST, "lost a node, and was not requeued"),
        "PREEMPTED": (Kind.PREEMPTED, "was preempted, and not requeued"),
        "BOOT_FAIL": (Kind.NOT_STARTED, "could not be started on its nodes"),
        "REVOKED": (Kind.CANCELLED, "was revoked"),
    }
    if status.state in whys:
        kind, why = whys[status.state]
        return Failure(kind, message=f"Slurm job {job} {why}.")
    if not has_run:
        seen = f": {message}" if message else ""
        return Failure(Kind.NOT_STARTED, message=f"Slurm job {job} ended before the run started{seen}.")
    return None
