"""The bits of tensors: whether they are the same, and digests of them that are computed where the tensors are."""

from collections.abc import Mapping

import torch
from torch import Tensor

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: Tensor) -> Tensor:
    """A tensor's bits as integers of the same width, in the same memory."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.detach().view(INTEGERS[tensor.element_size()])


def digest(tensor: Tensor) -> Tensor:
    """The sum of a tensor's bits as integers, () int64; any single changed bit changes it."""
    return bits(tensor).sum(dtype=torch.int64)


def are_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bits, NaNs included."""
    return torch.equal(bits(one), bits(other))


class Digests:
    """The digest of each of these tensors, by name. Waits for the devices only when values are read."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        by_device: dict[torch.device, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            by_device.setdefault(tensor.device, {})[name] = digest(tensor)
        self._found = [(list(some), torch.stack([*some.values()])) for some in by_device.values()]

    def values(self) -> dict[str, int]:
        return {name: value for names, own in self._found for name, value in zip(names, own.tolist(), strict=True)}

    def differing(self, other: "Digests") -> list[str]:
        """The names whose tensors differ, or that only one of the two has."""
        one, two = self.values(), other.values()
        return [name for name in {**one, **two} if one.get(name) != two.get(name)]
