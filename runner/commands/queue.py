"""``manyheads queue``: the runs that wait for a worker and those that are being run, in their order."""

import argparse
from dataclasses import dataclass

from manyheads.launchers.flags.queue.changes import add, cancel, move_first
from manyheads.launchers.flags.queue.entries import RunQueue
from manyheads.launchers.flags.queue.listing import QueuePlace, places
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import print_columns
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.run_folder import RunFolder

CHANGES = {"cancel": cancel, "first": move_first, "add": add}
HELP = "list what train --queue has queued: order, who runs what, why a run waits; cancel or move a run"


@dataclass(frozen=True)
class QueueState(Answer):
    """The queue of the working directory."""

    runs: list[QueuePlace]

    def show(self) -> None:
        if not self.runs:
            print("the queue is empty")
            return
        print_columns([("", "run", "status"), *(_line(run) for run in self.runs)])
        if all(run.pid is None for run in self.runs):
            print(f"no worker has taken one of them yet; start one with: {invocation.command('work')}")


def _line(run: QueuePlace) -> tuple[str, str, str]:
    return ("" if run.position is None else str(run.position), run.folder, run.reason)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--cancel", metavar="RUN", help="take a run out of the queue; one that runs stops with a checkpoint"
    )
    one.add_argument("--first", metavar="RUN", help="let a run that waits be the next one")
    one.add_argument("--add", metavar="RUN", help="put a run that was cancelled or interrupted back, behind the others")


def run(arguments: argparse.Namespace) -> QueueState:
    """List the queue, after the change that is asked for. Raises ConfigurationError, OSError."""
    asked = next(((change, name) for change in CHANGES if (name := getattr(arguments, change)) is not None), None)
    queue = RunQueue.existing() if asked is None else RunQueue.created()
    if queue is None:
        return QueueState([])
    with queue:
        if asked is not None:
            with queue.turn():
                CHANGES[asked[0]](queue, RunFolder(asked[1]))
        return QueueState(places(queue))
