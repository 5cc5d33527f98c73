"""What the ranks of a parity run find, as result.json holds it under ``parity``."""

from typing import NotRequired, TypedDict


class TensorDifference(TypedDict):
    """How far a tensor was from the baseline's. ``kind``: loss, gradient, weight or buffer.

    ``largest``: relative; ``step``: where it was; ``first``: the first step at which it exceeded the tolerance.
    """

    kind: str
    name: str
    largest: float
    step: int
    first: NotRequired[int]


class Culprit(TypedDict):
    """The first module that computed something else from the same input.

    ``reason``: statistics, random, buffer, or batch where nothing is known; ``buffers``: those of its own that differ;
    ``alike``: how many modules of the model have the same trait; ``number``: its place in the order of calls.
    """

    module: str
    kind: str
    reason: str
    buffers: list[str]
    alike: int
    number: NotRequired[int]
    rank: NotRequired[int]


class InitialDifference(TypedDict):
    """Names of a rank's tensors that were not built like the baseline's."""

    rank: int
    parameter: list[str]
    buffer: list[str]


class ParityFindings(TypedDict, total=False):
    """What came of the steps; the first group is of every run, the second of a baseline, the last of those compared.

    ``unused``: parameters that never had a gradient; ``cut``: the loss of a whole batch, and of its parts; ``initial``:
    what was not the baseline's before the first step; ``apart``: weights that were not the same on all ranks;
    ``loss``: the baseline's and the own, where they first differ; ``factor``: between their gradients.
    """

    ranks: int
    steps: int
    precision: str

    unused: list[str]
    finite: bool
    cut: tuple[float, float] | None

    differences: list[TensorDifference]
    initial: list[InitialDifference]
    apart: list[str]
    culprit: Culprit | None
    outputs_agree: bool | None
    loss: list[float] | None
    factor: float | None
