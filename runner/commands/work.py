"""``manyheads work``: a worker, which runs what is in the queue."""

import argparse
from dataclasses import dataclass
from typing import Annotated

from manyheads.launchers.flags.queue.entries import RunQueue
from manyheads.launchers.flags.queue.worker import Worker
from manyheads.runner.errors import ConfigurationError, ExitCode, Interrupted
from manyheads.runner.machine.process import received_signals
from manyheads.runner.run.answer import Answer

HELP = "run what train --queue has queued, one run after the other, each as soon as there is room"


@dataclass(frozen=True)
class WorkedRun:
    """A run that a worker has run."""

    folder: str
    status: Annotated[str, "completed, failed or interrupted; queued if the worker was stopped"]


@dataclass(frozen=True)
class Worked(Answer):
    """The runs that a worker has run, in their order."""

    runs: list[WorkedRun]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.FAILED if any(run.status == "failed" for run in self.runs) else ExitCode.DONE

    def show(self) -> None:
        if not self.runs:
            print("no run waits in the queue")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--until-empty", action="store_true", help="end once no run waits, instead of waiting for more")


def run(arguments: argparse.Namespace) -> Worked:
    """Run what is in the queue. Raises ConfigurationError and Interrupted, with the answer so far, and OSError."""
    with RunQueue.created() as queue, received_signals() as signals:
        worker = Worker(queue, signals)
        try:
            worker.work(until_empty=arguments.until_empty)
        except (ConfigurationError, Interrupted) as reason:
            reason.answer = _answer(worker)
            raise
        return _answer(worker)


def _answer(worker: Worker) -> Worked:
    return Worked([WorkedRun(str(run), status) for run, status in worker.ended])
