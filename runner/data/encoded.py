"""A batch of JPEG files on their way from the loader to the device that decodes them."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from runner.data.sampler import Request
from runner.data.views import View


class File(NamedTuple):
    """One JPEG, and what its sample shows of it. ``pixels``: how many it has."""

    content: bytes
    pixels: int
    view: View


@dataclass
class Encoded:
    """The batch of a ``request``: files that have still to be decoded, and samples that need not.

    content: (bytes,) uint8, the files one after the other, since each tensor that comes from a loader process takes a
    file descriptor; places: of the files in the batch; ready: (K, 3, size, size) uint8, the other samples in order.
    """

    request: Request
    content: Tensor
    lengths: list[int]
    pixels: list[int]
    views: list[View]
    places: list[int]
    ready: Tensor
    size: int

    def pin_memory(self) -> "Encoded":
        self.content, self.ready = self.content.pin_memory(), self.ready.pin_memory()
        return self
