"""The Slurm job of a run, recorded so that it is not submitted twice, and the job's status."""

from collections.abc import Sequence
from typing import Any

from manyheads.launchers.launcher_option import Standing
from manyheads.launchers.slurm import slurm_commands
from manyheads.launchers.slurm.following import ended_badly, last_line
from manyheads.launchers.slurm.slurm_commands import GONE, Status
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder

AWAY = "Slurm"  # key in a listing's answers: Slurm could not be asked


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
        print(printable(_standing(folder, job, status).text), flush=True)


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
