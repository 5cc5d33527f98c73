"""Copies of a GPU's tensors in pinned memory, which is kept from one checkpoint to the next.

A GPU copies to ordinary memory at a fraction of the bus's speed, and the host waits for each tensor. Here all copies
are queued on the current stream, and the host waits once. A stream of its own would gain nothing: what is copied may
change in the next forward pass already, such as statistics of BatchNorm.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

BLOCK = 2**26  # bytes that are pinned at once, if no tensor is larger; torch pins powers of two
ALIGNED = 64  # bytes
PLAIN = (Tensor, nn.Parameter)  # a subclass, such as for quantized weights, holds more than values


class HostCopies:
    """Keeps pinned memory for the last call's copies, at most ``most`` bytes. ``say``: shows a message.

    If the system pins no more, a message says so once, and ordinary memory is used instead.
    """

    def __init__(self, most: int, say: Callable[[str], None]):
        self._most, self._say = most, say
        self._blocks: list[Tensor] = []
        self._used: list[int] = []
        self._pins = True

    def of(self, tensors: Sequence[Tensor], otherwise: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """The tensors' copies on the CPU, complete when this returns; the next call overwrites them.

        Equal views of the same memory have one copy. ``otherwise``: returns what replaces a tensor that is not on a
        GPU, or for which there is no room.
        """
        self._used = [0] * len(self._blocks)
        copies: dict[Any, Tensor] = {}
        results, devices = [], set()
        for tensor in tensors:
            if not (tensor.is_cuda and type(tensor) in PLAIN and tensor.layout is torch.strided and tensor.numel()):
                results.append(otherwise(tensor))
                continue
            view = (tensor.untyped_storage(), tensor.storage_offset(), tensor.dtype, tensor.shape, tensor.stride())
            if view not in copies:
                if (target := self._target(tensor)) is None:
                    copies[view] = otherwise(tensor)
                else:
                    copies[view] = target.copy_(tensor.detach(), non_blocking=True)
                    devices.add(tensor.device)
            results.append(copies[view])
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        self._blocks = [block for block, used in zip(self._blocks, self._used, strict=True) if used]
        return results

    def _target(self, tensor: Tensor) -> Tensor | None:
        """A tensor for the copy, with a storage of its own in a block; None if there is no room."""
        size = -(-tensor.nbytes // ALIGNED) * ALIGNED
        fitting = (n for n, block in enumerate(self._blocks) if self._used[n] + size <= len(block))
        if (number := next(fitting, None)) is None:
            length = max(BLOCK, 1 << (size - 1).bit_length())
            if sum(map(len, self._blocks)) + length > self._most:
                return None
            number = len(self._blocks)
            self._blocks.append(self._block(length))
            self._used.append(0)
        begin, self._used[number] = self._used[number], self._used[number] + size
        memory = self._blocks[number].numpy()
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=begin)
        return flat.as_strided(tensor.shape, torch.empty_like(tensor, device="meta").stride())

    def _block(self, length: int) -> Tensor:
        if self._pins:
            try:
                return torch.empty(length, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                self._pins = False
                reason = str(error).partition("\n")[0]
                self._say(f"no more memory can be pinned ({reason}): copying checkpoints from the GPU takes longer")
        return torch.empty(length, dtype=torch.uint8)
