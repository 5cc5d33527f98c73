"""A rank that measures updates as in training and nothing else, for comparison with a prediction."""

from functools import partial

from manyheads.runner.answers.measure.limits import UPDATE
from manyheads.runner.answers.measure.rank import floors
from manyheads.runner.loop import rank_main as worker

SECONDS = 0.6  # updates are repeated for this long in each round

main = worker.program(partial(floors.work, only=(UPDATE,), seconds=SECONDS), __name__)
