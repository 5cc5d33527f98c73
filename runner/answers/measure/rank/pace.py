"""A rank that makes the run's own updates and times some of them, as a total."""

from functools import partial

from manyheads.runner.answers.measure.pace_task import BEGAN, ENDED, WARM_UP, read_task
from manyheads.runner.answers.measure.rank.measuring import measuring, program
from manyheads.runner.answers.measure.rank.parts import TimedUpdates, fitted
from manyheads.runner.loop.clock import wait_for_all
from manyheads.runner.loop.session import Session
from manyheads.runner.run.data_files import no_link


def pace(session: Session) -> None:
    """Make the updates that the folder's task asks for, and write ``pace`` to result.json: their number and seconds."""
    updates, trainer, parallel = read_task(session.folder), session.trainer, session.parallel

    def mark(name: str) -> None:
        if parallel.records:
            with open(session.folder.path / name, "wb", opener=no_link):
                pass

    def begin() -> None:
        wait_for_all(parallel)
        mark(BEGAN)

    session.update.prime(trainer.train.example, warm_up=trainer.settings.warm_up)
    timed = TimedUpdates(parallel, first=WARM_UP, last=WARM_UP + updates, began=begin, ended=partial(mark, ENDED))
    session.conclude(pace={"seconds": fitted(trainer, timed), "updates": updates})


main = program(measuring(pace), __name__)
