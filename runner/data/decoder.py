"""data.decode=cuda, the device's side: a batch of JPEG files becomes images there, by torchvision and nvJPEG.

Source: https://docs.pytorch.org/vision/stable/generated/torchvision.io.decode_jpeg.html.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import simplejpeg
import torch
import torchvision
from torch import Tensor

from runner.data.encoded import Encoded
from runner.data.photos import middle, resized
from runner.data.views import View
from runner.errors import ConfigurationError

AT_ONCE = 2**28  # bytes of pixels decoded by one call, some 500 photos of ImageNet's size
REMEDY = "Set data.decode=cpu."


class Decoder:
    """Makes images on ``device``, which a GPU does, and tests on the CPU. Raises ConfigurationError if it can't."""

    def __init__(self, device: torch.device):
        self.device = device
        self._jpegs = decode_jpegs()
        self._has_complained = False
        sample = bytearray(simplejpeg.encode_jpeg(np.zeros((64, 64, 3), np.uint8)))
        try:
            self._jpegs([torch.frombuffer(sample, dtype=torch.uint8)], device)
        except Exception as error:  # without nvJPEG, without a driver, or as a later torchvision may have it
            raise ConfigurationError(
                f"data.decode=cuda: torchvision {torchvision.__version__} can't decode a JPEG on {device} "
                f"({str(error).splitlines()[0]}). {REMEDY}"
            ) from None

    def __call__(self, encoded: Encoded) -> Tensor | None:
        """(B, 3, size, size) uint8; None where a file can be decoded neither here nor by libjpeg-turbo."""
        files, shown = encoded.content.split(encoded.lengths), [encoded.ready.to(self.device)]
        for start, stop in groups(encoded.pixels):
            images = self._decoded(files[start:stop])
            if any(image is None for image in images):
                return None
            shown.append(show(images, encoded.views[start:stop], encoded.size))  # type: ignore[arg-type]
        batch = torch.cat(shown)
        ready = sorted(set(range(len(batch))) - set(encoded.places))
        if not ready:
            return batch
        order = np.argsort([*ready, *encoded.places])
        return batch[torch.from_numpy(order).to(self.device)]

    def _decoded(self, files: Sequence[Tensor]) -> list[Tensor | None]:
        """Each (3, H, W) uint8, in RGB; None for what is damaged."""
        if self.device.type == "cuda":
            # torchvision decodes on a stream of its own, and does not wait until the current one has read what was in
            # the memory that it gets: https://github.com/pytorch/vision/pull/9606.
            torch.cuda.current_stream(self.device).synchronize()
        try:
            return list(self._jpegs(list(files), self.device))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # of one of them, and no other is returned either
            if len(files) == 1:
                return [self._by_libjpeg(files[0], error)]
            half = len(files) // 2
            return self._decoded(files[:half]) + self._decoded(files[half:])

    def _by_libjpeg(self, file: Tensor, reason: Exception) -> Tensor | None:
        try:
            pixels = simplejpeg.decode_jpeg(file.numpy())
        except ValueError:
            return None
        if not self._has_complained:
            self._has_complained = True
            what = f"{self.device} can't decode every JPEG, so the CPU does that for some: {reason}"
            logging.getLogger(__name__).warning("%s", what.splitlines()[0])
        return torch.from_numpy(pixels).permute(2, 0, 1).to(self.device)


def decode_jpegs() -> Callable[[list[Tensor], torch.device], list[Tensor]]:
    """From files, (bytes,) uint8 on the CPU, to (3, H, W) uint8 on a device. Raises ConfigurationError."""
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except ImportError:
        raise ConfigurationError(
            f"data.decode=cuda: torchvision {torchvision.__version__} has no decode_jpeg any more. {REMEDY}"
        ) from None
    # torchvision 0.29 warns at each call that it will be removed. A user can't do anything about that, and will read
    # the error above when it is so.
    warnings.filterwarnings("ignore", "The image decoding and encoding capabilities of TorchVision", DeprecationWarning)
    return lambda files, device: decode_jpeg(files, mode=ImageReadMode.RGB, device=device)


def groups(pixels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """From and to which file to decode at once; by photos of many megapixels a whole batch would fill the GPU."""
    start = size = 0
    for number, count in enumerate(pixels):
        if number > start and size + 3 * count > AT_ONCE:
            yield start, number
            start, size = number, 0
        size += 3 * count
    if pixels:
        yield start, len(pixels)


def show(images: Sequence[Tensor], views: Sequence[View], size: int) -> Tensor:
    """What each view shows of its image: (N, 3, size, size) uint8.

    Resized as float32, since CUDA has no such kernel for uint8, and one by one, since no crop is of another's size.
    """
    crops = []
    for image, view in zip(images, views, strict=True):
        top, left, height, width = view.box
        part = image[:, top : top + height, left : left + width]
        crops.append(middle(resized(part.float(), view.scaled), size))
    batch = torch.stack(crops).round_().clamp_(0, 255).to(torch.uint8)
    is_mirrored = torch.tensor([view.is_mirrored for view in views], device=batch.device).view(-1, 1, 1, 1)
    return torch.where(is_mirrored, batch.flip(-1), batch)
