"""The main of each rank, ``python -m manyheads.runner.loop.rank_main <folder>``: read run.yaml, join, train, leave."""

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from manyheads.runner.loop.rank_process import become_rank, log_failure, logging_to, note_collectives
from manyheads.runner.machine.process import RECEIVED, die_with_parent, handle_signals
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import FINISHED, Heartbeat
from manyheads.runner.run.rank_info import NAMES, RankInfo, read_rank_info
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.parallel import Parallel

Work = Callable[[RunConfig, "Parallel", RunFolder, Heartbeat], None]


def main(path: str, *, work: Work | None = None, failed: Callable[[], object] = bool) -> NoReturn:
    """Run the rank that the environment names, in a separate process, and end the process.

    ``work``: what it does; None to train. ``failed``: called before the process ends with a failure, which is reported.
    """
    folder = RunFolder(path)
    rank, local_rank, world_size = read_rank_info()
    os.environ |= dict(zip(NAMES[0], map(str, (rank, local_rank, world_size)), strict=True))  # for the user's code
    die_with_parent()
    heartbeat = Heartbeat.of_rank(RankInfo(rank, local_rank, world_size), folder.heartbeat)
    # A cluster may signal the ranks themselves.
    handle_signals(lambda number, _: setattr(heartbeat, "stop_signal", number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RECEIVED)  # the launcher may have blocked them
    code = 0
    try:
        become_rank(folder, rank, world_size)
        run_rank(folder, rank=rank, local_rank=local_rank, world_size=world_size, apart=True, work=work)
    except BaseException as error:
        heartbeat.fail(error)
        code = log_failure(error)
        failed()
    with suppress(OSError):  # of the disk that the log is on
        sys.stdout.flush()
    logging.shutdown()
    os._exit(code)  # despite threads that a broken collective may have left behind


def run_rank(
    folder: RunFolder, *, rank: int, local_rank: int, world_size: int, apart: bool, work: Work | None = None
) -> None:
    """Train, or do ``work``, as rank ``rank`` of ``world_size``.

    ``apart``: in a process of its own, not the parent's.
    """
    heartbeat = Heartbeat.of_rank(RankInfo(rank, local_rank, world_size), folder.heartbeat)
    heartbeat.enter()
    with logging_to(folder.rank_log(rank), apart=apart):
        from manyheads.runner.loop import build, session

        run = RunConfig.read(folder)
        if apart:
            run.launcher.bind_rank(local_rank, on_gpus=run.on_gpus)
        parallel = build.join(run, rank=rank, local_rank=local_rank, world_size=world_size)
        if world_size > 1:
            note_collectives(parallel, heartbeat)
        try:
            (work or session.work)(run, parallel, folder, heartbeat)
        except BaseException:
            if not apart:  # a process of its own reports first what happened, before others fail because it is gone
                parallel.leave()
            raise
        parallel.leave()
    heartbeat.leave(FINISHED)


if __name__ == "__main__":
    main(sys.argv[1])
