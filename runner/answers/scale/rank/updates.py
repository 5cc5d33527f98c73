"""A rank that measures updates as in training and nothing else, for comparison with a prediction."""

from functools import partial

from manyheads.runner.answers.measure.limits import UPDATE
from manyheads.runner.answers.measure.rank.floors import floors
from manyheads.runner.answers.measure.rank.measuring import measuring, program

SECONDS = 0.6  # updates are repeated for this long in each round

main = program(measuring(partial(floors, only=(UPDATE,), seconds=SECONDS)), __name__)
