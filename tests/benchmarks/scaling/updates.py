"""A rank that measures updates and nothing else, with its CPU quota."""

import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from manyheads.runner.answers.scale.rank import updates
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests import cpu_quota


def with_quota(work: worker.Work) -> Callable[[str], NoReturn]:
    """The function ``main`` of a rank that does this work within its CPU quota."""

    def within(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
        cpu_quota.enter(parallel.rank)
        work(run, parallel, folder, heartbeat)

    return partial(worker.main, work=within)


main = with_quota(updates.work)

if __name__ == "__main__":
    main(sys.argv[1])
