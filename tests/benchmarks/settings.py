"""Defaults that were chosen for speed against their alternatives, on an MLP, where threads and overhead weigh most.

Not here: copying batches ahead, which only GPUs do, and Python's garbage, which is a row of the loop.
"""

from functools import partial

from tests.benchmarks.defaults import by_command, title
from tests.benchmarks.measure import Comparison, compare

DEFAULT, NO_NUMA = "manyheads, default settings", "launcher.numa=false"  # which changes nothing on a single socket
OTHERS = (
    "launcher.wait_policy=default",
    "launcher.wait_policy=active",
    "launcher.wait_policy=brief",
    "launcher.threads_per_rank=1",
)


def alone(rounds: int = 3) -> Comparison:
    """One rank."""
    return _compared(1, OTHERS, rounds)


def of_ranks(rounds: int = 3) -> Comparison:
    """Two ranks."""
    return _compared(2, (*OTHERS, NO_NUMA), rounds)


def _compared(ranks: int, others: tuple[str, ...], rounds: int) -> Comparison:
    candidates = {DEFAULT: partial(by_command, "mlp", ranks)}
    candidates |= {override: partial(by_command, "mlp", ranks, override) for override in others}
    return compare(title("mlp", ranks), candidates, rounds=rounds, warm_up=False)
