"""A rank that measures: it trains as the run would, but shows and records nothing except what it measured."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import NoReturn

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.build import build_unrecorded
from manyheads.runner.loop.determinism import operations_named
from manyheads.runner.loop.prepare import Prepared
from manyheads.runner.loop.rank_main import Work
from manyheads.runner.loop.session import Session
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder


@contextmanager
def unrecorded(
    run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat, prepared: Prepared | None = None
) -> Iterator[Session]:
    """A context with a session that shows and records nothing. ``prepared``: the parts of its trainer."""
    trainer = build_unrecorded(run, parallel, folder, heartbeat, prepared)
    with closing(trainer):
        yield Session(trainer, run, checkpoints=CheckpointStore(folder, every=0, keep=0), folder=folder)


def program(work: Work, module: str) -> Callable[[str], NoReturn]:
    """The main of a module whose ranks do ``work``. ``module``: its ``__name__``, since ``python -m`` runs it, too."""
    rank = partial(worker.main, work=work)
    if module == "__main__":
        rank(sys.argv[1])
    return rank


def measuring(measure: Callable[[Session], None]) -> Work:
    """The work of a rank that calls ``measure``, seeded as training is."""
    return partial(_work, measure)


@operations_named()
def _work(
    measure: Callable[[Session], None], run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat
) -> None:
    with unrecorded(run, parallel, folder, heartbeat) as session:
        seed_everything(run.seed + 1 + parallel.data_rank)
        measure(session)
