"""What a rank does whose updates are to be compared with a prediction: updates as in training, nothing else."""

from typing import NoReturn

from manyheads.runner.commands.explain.limits import UPDATE
from manyheads.runner.commands.explain.rank import floors
from manyheads.runner.commands.scale import cpu_quota
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder

SECONDS = 0.6  # of updates in each round


def main(path: str) -> NoReturn:
    """Be one rank. Ends the process."""
    worker.main(path, work=work)


def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Measure updates alone."""
    cpu_quota.enter(parallel.rank)
    floors.work(run, parallel, folder, heartbeat, only=(UPDATE,), seconds=SECONDS)


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
