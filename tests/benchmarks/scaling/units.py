"""A rank that measures like that of ``manyheads scale``, with its CPU quota."""

from typing import NoReturn

from manyheads.runner.answers.scale.rank import units
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests import cpu_quota


def main(path: str) -> NoReturn:
    """Be the rank of a run whose parts and units are measured. Ends the process. ``path``: the run folder."""
    worker.main(path, work=work)


def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Measure them, and write them to result.json."""
    cpu_quota.enter(parallel.rank)
    units.work(run, parallel, folder, heartbeat)


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
