"""Names the samples whose NaN or infinity made a loss that is not a number."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.data.samples import origin_of
from manyheads.runner.parallel.rank.parallel import Parallel

if TYPE_CHECKING:
    from manyheads.runner.loop.trainer import Trainer

PARTS = {0: "input", 1: "target"}


class NotFinite(FloatingPointError):
    """A loss or gradients that are not finite, in all ranks. ``what``: the error; ``remedy``: if the data is finite.

    ``steps``: the updates in question, counted from 1.
    """

    def __init__(self, what: str, remedy: str, steps: range):
        super().__init__(f"{what}. {remedy}")
        self.what, self.remedy, self.steps = what, remedy, steps


@contextmanager
def data_named(trainer: "Trainer") -> Iterator[None]:
    """A context in which NotFinite is replaced by a FloatingPointError that names such data, on all ranks.

    The updates' samples are read again.
    """
    try:
        yield
    except NotFinite as error:
        progress, parallel = trainer.progress, trainer.update.parallel
        before = progress.step - progress.epoch_step  # updates of earlier epochs
        requests = (
            request for step in error.steps if step > before for request in trainer.train.requests(step - 1 - before)
        )
        if (finding := first_finding(trainer.train, requests, parallel)) is None:
            raise
        raise FloatingPointError(
            f"{error.what}. The data is not finite: {finding}. Correct it or leave it out; if the model is meant "
            f"to take such values: {error.remedy}"
        ) from None


def first_finding(loader: Loader, requests: Iterable[BatchIndices], parallel: Parallel) -> str | None:
    """As ``non_finite``, of the first rank that finds one; all ranks call it, unless they come and go."""
    finding = non_finite(loader, requests)
    findings = [finding] if parallel.keeps_rows else parallel.gather(finding)
    return next((text for text in findings if text is not None), None)


def non_finite(loader: Loader, requests: Iterable[BatchIndices]) -> str | None:
    """The first sample with NaN or infinity in these batches, in words; None if there is none."""
    for request in requests:
        batch = loader.batches.fetch(request)
        if not isinstance(batch, Batch):
            continue
        for name, tensor in _named(batch.content):
            if tensor.is_floating_point() and len(tensor) == len(batch.ids):
                rows = (~tensor.isfinite()).flatten(1).any(1) if tensor.ndim > 1 else ~tensor.isfinite()
                if bool(rows.any()):
                    row = int(rows.nonzero()[0])
                    values = tensor[row].flatten()
                    value = float(values[~values.isfinite()][0])
                    return f"the {name} of {origin_of(loader.batches.dataset, int(batch.ids[row]))} has {value}"
    return None


def _named(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a batch, each with its place in it."""
    if isinstance(value, Tensor) and value.ndim:
        yield name or PARTS[0], value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(item, f"{name} {key}".strip())
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from _named(item, f"{name} {number}" if name else PARTS.get(number, f"entry {number}"))
