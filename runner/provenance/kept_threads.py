"""The number of CPU threads that a recorded run's ranks have chosen, for its repetitions."""

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder


def chosen_threads(folder: RunFolder) -> int | None:
    """The number for each rank; None if the config sets it, or the run has not begun to train."""
    try:
        return max(1, int(read_json(folder.threads)["threads"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def kept_threads(folder: RunFolder) -> list[str]:
    """The override by which another run has as many threads, and so rounds as the recorded one; empty without any."""
    threads = chosen_threads(folder)
    return [] if threads is None else [f"launcher.threads_per_rank={threads}"]
