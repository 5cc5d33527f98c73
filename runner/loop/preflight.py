"""Finds, before a run starts, what its ranks would refuse: classes, arguments, and outputs that do not fit the data.

Runs in a process of its own, since constructors may do anything. Tensors are on torch's meta device, which has shapes
but no memory. Some models cannot be built there: only a ConfigurationError refuses a run, and one that the meta device
may have caused is confirmed with real tensors.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import torch
from torch import nn

from manyheads.runner.data.data_option import Data
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.custom import check_custom
from manyheads.runner.errors import ConfigurationError, Failure
from manyheads.runner.machine.process import die_with_parent
from manyheads.runner.model.rank.build_model import bare_model
from manyheads.runner.optimizer.rank.build_optimizer import build_optimizer
from manyheads.runner.option.locate import load, locate
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section, targets
from manyheads.runner.parallel.rank.structure import call
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.task.rank.build_task import build_task
from manyheads.runner.task.rank.task import Task

CPU_SECONDS = 10  # a constructor may take any time; the ranks then find out themselves
SAMPLES = 2
CHANNELS = 3  # of images in all data sets of this project


class Unread(Data):
    """Stands in for data that is not read: a constructor needs some number of classes."""

    num_inputs = 2

    def __init__(self, num_classes: int | None):
        self.num_classes = num_classes or 2


def main(config: Section, answer: Connection) -> NoReturn:
    """Send the Failure with which a run of this config would be refused, None if none is known, and end the process.

    A Failure that is no mistake by the user is a fault of the check.
    """
    die_with_parent()
    with open(os.devnull, "w") as nowhere:  # a constructor may print, and will do so again in the ranks
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    try:
        error: Exception | None = refusal(RunConfig.of(config))
    except Exception as fault:
        error = fault
    answer.send(None if error is None else Failure.of(error))
    os._exit(0)


def refusal(run: RunConfig) -> ConfigurationError | None:
    """Why the run would be refused; None if no check knows a reason. Raises what is a fault of a check itself."""
    if "pretrained" in run.model.section:
        run = run.changed(model={"pretrained": None})
    for check in _checks(run):
        try:
            check()
        except ConfigurationError as error:
            return error
        except Exception as error:  # of the user's code, or of the meta device; the ranks report it if it is real
            if _is_own_fault(error):
                raise
    return None


def _is_own_fault(error: Exception) -> bool:
    """Whether this project's code raised it, apart from what the meta device, a file or a missing library may cause."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    is_of_package = (frame.f_globals.get("__package__") or "").partition(".")[0] == "manyheads"
    return is_of_package and not isinstance(error, (RuntimeError, OSError, ImportError))


def _checks(run: RunConfig) -> Iterator[Callable[[], None]]:
    """The checks, in the order in which ranks would fail."""
    yield lambda: _locate_all(run.written)
    is_own = run.data.target.startswith("manyheads.")
    if not is_own:
        yield lambda: check_custom(run.data)
    yield lambda: _step(run)
    yield lambda: _model(run, build_data(run.data) if is_own else Unread(run.data.num_classes), reads=is_own)
    yield lambda: _optimizer(run)  # last, since it makes torch import for two more seconds


def _locate_all(config: Section) -> None:
    for key, target in targets(config):
        group, _, name = key.rpartition(".")
        if target != "auto" and not target.startswith("manyheads."):  # some of this project's import slow libraries
            locate(group, target, key=name)


def _step(run: RunConfig) -> None:
    """Whether a task with its own step works with the other settings."""
    kind = run.task.kind
    if isinstance(kind, type) and issubclass(kind, Task) and kind.step is not Task.step:
        load("manyheads.runner.loop.own_step.build.kind_of")(run.parallel, run.precision, run.trainer, seed=run.seed)


def _optimizer(run: RunConfig) -> None:
    for option in run.optimizer.singles:
        build_optimizer(option, nn.Linear(2, 2), batch_size=run.data.batch_size)


def _model(run: RunConfig, data: Data, *, reads: bool) -> None:
    """Build the model and, for images of a task with dummy targets, compute the loss of its outputs."""
    try:
        with torch.device("meta"):
            model = bare_model(run.model, data)
    except ConfigurationError:
        bare_model(run.model, data)  # with real tensors; raises again unless the meta device was the reason
        return
    task = build_task(run.task, data, loss=run.loss, label_smoothing=run.trainer.label_smoothing)
    task.check_model(model)
    side: Any = getattr(data, "image_size", None)
    if not reads or side is None or run.trainer.resize_from is not None:
        return
    with torch.no_grad(), torch.device("meta"):
        if (targets := task.dummy_targets(SAMPLES)) is not None:
            batch = torch.zeros(SAMPLES, CHANNELS, side, side), targets
            task.loss(call(model.eval(), task.inputs(batch)), batch)


if __name__ == "__main__":  # with a run's folder, and the descriptor for the answer
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # ends the process
    main(RunConfig.read(RunFolder(sys.argv[1])).written, Connection(int(sys.argv[2])))
