"""A rank that measures updates as in training and nothing else, for comparison with a prediction."""

from typing import NoReturn

from manyheads.runner.answers.measure.limits import UPDATE
from manyheads.runner.answers.measure.rank import floors
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder

SECONDS = 0.6  # updates are repeated for this long in each round


def main(path: str) -> NoReturn:
    """Be one rank of a run whose updates are measured. Ends the process. ``path``: the run folder."""
    worker.main(path, work=work)


def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Measure updates, and write them to result.json."""
    floors.work(run, parallel, folder, heartbeat, only=(UPDATE,), seconds=SECONDS)


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
