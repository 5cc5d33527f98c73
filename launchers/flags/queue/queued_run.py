"""The process that runs one run of the queue, for a worker, and dies with it.

python -m manyheads.launchers.flags.queue.queued_run FOLDER DESCRIPTOR  # of the run's file in the queue
"""

import os
import sys

from manyheads.launchers.flags.queue.entries import fail
from manyheads.launchers.result import as_failure
from manyheads.launchers.resume_run import resume_run
from manyheads.runner.errors import ConfigurationError, ExitCode
from manyheads.runner.loop.rank_process import hold
from manyheads.runner.records.run_result import Result
from manyheads.runner.respond import respond
from manyheads.runner.run.run_folder import RunFolder


def run(folder: RunFolder, descriptor: int) -> Result | None:
    """Run what is frozen in a folder, from its last checkpoint if it has one. Raises as ``resume_run``.

    ``descriptor``: stays open for as long as this process lives, and in none that it starts.
    """
    os.set_inheritable(descriptor, False)
    hold(descriptor)
    try:
        return resume_run(folder, as_recorded=True)
    except ConfigurationError as error:
        if error.exit_code == ExitCode.REFUSED and (failure := as_failure(error)) is not None:
            fail(folder, failure)
        raise


if __name__ == "__main__":
    sys.exit(respond("resume", lambda: run(RunFolder(sys.argv[1]), int(sys.argv[2]))))
