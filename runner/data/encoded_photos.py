"""data.decode=cuda, the loader's side: JPEGs as they are in the file, and what their samples shall show.

The crops are drawn here, from the same random numbers as with data.decode=cpu; `decoder.py` makes images of them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from runner.data.base import DecodedOnDevice
from runner.data.decoder import Decoder
from runner.data.encoded import Encoded, File
from runner.data.photos import Photos, Picture, shown
from runner.data.sampler import Request
from runner.data.views import View

COLOURS = ("YCbCr", "Gray")  # of which nvJPEG makes RGB
END = b"\xff\xd9"  # of a sound JPEG; where it is missing, nvJPEG may leave the rest grey without a word


class EncodedPhotos(Photos, DecodedOnDevice):
    """Photos whose JPEGs are left to the device; all else, and what looks damaged, is decoded by the loader."""

    def sample(self, picture: Picture, view: View) -> File | Tensor:
        if picture.is_jpeg and picture.colours in COLOURS and picture.content.endswith(END):
            return File(picture.content, picture.height * picture.width, view)
        return shown(picture, view, self.image_size)

    def pack(self, samples: Sequence[File | Tensor], request: Request) -> Encoded:
        """The samples as one batch."""
        files = {place: sample for place, sample in enumerate(samples) if isinstance(sample, File)}
        ready = [sample for sample in samples if isinstance(sample, Tensor)]
        content = bytearray().join(file.content for file in files.values())
        size = self.image_size
        return Encoded(
            request=request,
            content=torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8),
            lengths=[len(file.content) for file in files.values()],
            pixels=[file.pixels for file in files.values()],
            views=[file.view for file in files.values()],
            places=list(files),
            ready=torch.stack(ready) if ready else torch.empty(0, 3, size, size, dtype=torch.uint8),
            size=size,
        )

    def decoder(self, device: torch.device) -> Decoder:
        """What makes images of packed batches. Raises ConfigurationError."""
        return Decoder(device)

    def on_cpu(self) -> Photos:
        """The same samples, decoded by whoever loads them."""
        return Photos(self.paths, self.targets, image_size=self.image_size, train=self.train)
