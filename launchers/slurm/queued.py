"""The job of a run in the queue, recorded so that it is not submitted twice."""

from manyheads.launchers.slurm import commands
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder


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


def refuse_queued(folder: RunFolder) -> None:
    """Raises ConfigurationError where the run's job is still in the queue, or runs."""
    if (job := noted_job(folder)) is None:
        return
    status = commands.status(job)
    if not status.is_over:
        raise ConfigurationError(
            f"{folder} is already in the queue: job {job} {status}. Wait for it, or end it with `scancel {job}`."
        )
