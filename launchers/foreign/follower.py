"""The main of a rank above 0 that sees the run folder: trains, and records that rank 0 has died, if it does."""

import os
import sys
import threading
import time
from functools import partial
from typing import NoReturn

from manyheads.launchers.foreign.world import OURS
from manyheads.launchers.processes import existing
from manyheads.launchers.result import finish
from manyheads.runner.errors import Failure, Kind, RunFailed
from manyheads.runner.loop import rank_main
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.files import in_turn, is_locked
from manyheads.runner.run.run_folder import RunFolder

LAST_SECONDS = 3.0  # that a rank which has failed waits for the end of rank 0's process


def main(path: str) -> NoReturn:
    """Run the rank that the environment names, in this process, and end the process."""
    folder, leader = RunFolder(path), os.environ.get(OURS)  # on rank 0's machine
    if leader is None and not is_locked(folder.config):  # a file system on which locks do not reach other machines
        rank_main.main(path)
    if leader is not None and not any(existing([int(leader)])):  # rank 0 died as the ranks joined
        witness_end(folder)
    witness = threading.Thread(target=partial(witness_end, folder), name="witness", daemon=True)
    witness.start()
    rank_main.main(path, failed=partial(witness.join, LAST_SECONDS))


def witness_end(folder: RunFolder) -> None:
    """Wait until rank 0's process ends; if it has not recorded how the run ended, record that it died.

    The process holds the run's lock to its end, however that comes.
    """
    run, begun = RunConfig.read(folder), time.monotonic()
    with in_turn(folder.config):
        if folder.read_result() is None:
            how = f"its process disappeared without reporting an error; {run.launcher.starter} has printed how it ended"
            reason = RunFailed(Failure(Kind.PROCESS_DIED, rank=0, message=how))
            finish(folder, run.as_planned, time.monotonic() - begun, reason)


if __name__ == "__main__":
    main(sys.argv[1])
