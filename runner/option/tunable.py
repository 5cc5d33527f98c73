"""Keys that only change how the same updates are computed: what is worth trying for speed, and where nothing is."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from manyheads.runner.machine import hardware

if TYPE_CHECKING:
    from manyheads.runner.option.run_config import RunConfig

DATA, COMPUTE, COMMUNICATION, OPTIMIZER = "data", "compute", "communication", "optimizer"
PARTS = (DATA, COMPUTE, COMMUNICATION, OPTIMIZER)  # of an update's time
Values = Callable[["RunConfig"], "Sequence[Any] | str"]


class Tunable(NamedTuple):
    """A key that changes how updates are computed, but not their result up to rounding.

    ``part``: of an update's time that it changes, one of PARTS. ``values``: called with a resolved run config; what is
    worth trying for it on this machine, the run's own value among it or not; a string says why nothing is. ``needs``:
    keys that have to be set along with it.
    """

    part: str
    values: Values
    needs: Mapping[str, Any] = {}


def always(*values: Any) -> Values:
    """These values, whatever the run and the machine."""
    return lambda run: values


def never(reason: str) -> Values:
    """No value: the key is left as it is, for this reason."""
    return lambda run: reason


def powers_of_two(most: int, *, least: int = 1) -> list[int]:
    """Those from ``least`` to ``most``, and ``most`` itself."""
    found = [2**power for power in range(most.bit_length()) if least <= 2**power]
    return sorted({*found, most}) if most >= least else []


def cores_of_a_rank(run: "RunConfig") -> int:
    """How many cores each rank of this machine may use."""
    return max(1, hardware.cores_for_each(run.launcher.nproc_per_node))
