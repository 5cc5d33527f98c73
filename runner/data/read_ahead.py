"""Has samples fetched before they are needed, since the order in which they are taken is known."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np

_Request = TypeVar("_Request")


class ReadAhead(NamedTuple):
    """How a data set is read ahead. ``batches``: how many; ``fetch``: starts fetching samples by their indices.

    A data set offers it as ``read_ahead``, which is None, or missing, if that would not help.
    """

    batches: int
    fetch: "Callable[[np.ndarray], None]"

    def of(self, chosen: "np.ndarray") -> "ReadAhead":
        """Reading ahead for a data set of the ``chosen`` samples."""
        return ReadAhead(self.batches, lambda indices: self.fetch(chosen[indices]))


def read_ahead(dataset: Any, requests: Iterator[_Request]) -> Iterator[_Request]:
    """The requests, whose samples are fetched some batches before each is taken."""
    ahead: ReadAhead | None = getattr(dataset, "read_ahead", None)
    return requests if ahead is None else _followed(ahead, requests)


def _followed(ahead: ReadAhead, requests: Iterator[Any]) -> Iterator[Any]:
    waiting: deque[Any] = deque()
    for request in requests:
        ahead.fetch(request.indices)
        waiting.append(request)
        if len(waiting) > ahead.batches:
            yield waiting.popleft()
    yield from waiting
