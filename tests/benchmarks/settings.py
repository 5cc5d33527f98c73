"""Defaults that were chosen for speed, against other values, and against the same by hand with torch's own settings.

Not here: copying batches ahead, which only GPUs do, and Python's garbage, which is a row of the loop.
"""

from collections.abc import Callable
from functools import partial

from tests.benchmarks.defaults import BY_HAND, LOADED, by_command, by_script, title
from tests.benchmarks.measure import Comparison, compare

DEFAULT = "manyheads, default settings"
ALONE = (
    "launcher.wait_policy=default",
    "launcher.wait_policy=active",
    "launcher.wait_policy=brief",
    "launcher.threads_per_rank=1",
)
OF_RANKS = (*ALONE, "launcher.numa=false")  # which changes nothing on a single socket
# By model and number of ranks, what the default is compared with.
ROWS: dict[tuple[str, int], tuple[str, ...]] = {
    ("mlp", 1): ALONE,
    ("mlp", 2): OF_RANKS,
    ("small_cnn", 1): ALONE,
    ("small_cnn", 2): OF_RANKS,
    (LOADED, 1): ("data.num_workers=0", "data.num_workers=1"),
}


def of(model: str, ranks: int) -> Callable[[], Comparison]:
    """What measures a row."""

    def measure(rounds: int = 3) -> Comparison:
        candidates: dict[str, Callable[[], float]] = {DEFAULT: partial(by_command, model, ranks)}
        candidates |= {override: partial(by_command, model, ranks, override) for override in ROWS[model, ranks]}
        candidates |= {BY_HAND: partial(by_script, model, ranks)}
        return compare(title(model, ranks), candidates, rounds=rounds, warm_up=False)

    measure.__module__, measure.__name__ = __name__, f"{model} x {ranks}"
    return measure
