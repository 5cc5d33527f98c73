"""The findings of a check for silent data corruption on all ranks, and which rank is at fault."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from manyheads.runner.errors import Kind
from manyheads.runner.wording import listed


class Corrupted(RuntimeError):
    """Silent data corruption. ``is_here``: whether it was found on this rank, which the run's error then names."""

    def __init__(self, message: str, *, is_here: bool):
        super().__init__(message)
        self.kind = Kind.CORRUPTED if is_here else Kind.LOST_PEER


class Found(NamedTuple):
    """Names of the tensors that differ between two computations of the same gradients on a rank.

    ``own``: its own gradients and losses; ``exchanged``: gradients after the exchange; ``replica``: digests of the
    exchanged gradients, if they must be the same on all ranks.
    """

    device: str
    own: list[str]
    exchanged: list[str]
    replica: Mapping[str, int]


def culprits(everyone: Sequence[Found]) -> dict[int, str]:
    """What is wrong, by rank; empty if nothing is. A rank that only received wrong values is not named."""
    own = {rank: list(dict.fromkeys([*each.own, *each.exchanged])) for rank, each in enumerate(everyone) if each.own}
    if own:
        return {rank: f"two computations of {listed(names)} differ" for rank, names in own.items()}
    exchanged = {rank: each.exchanged for rank, each in enumerate(everyone) if each.exchanged}
    if exchanged:
        return {rank: f"the exchanged gradients of {listed(names)} differ" for rank, names in exchanged.items()}
    odd = other_replicas([each.replica for each in everyone])
    return {
        rank: f"the exchanged gradients of {listed(names)} differ from those of other ranks"
        for rank, names in odd.items()
    }


def other_replicas(digests: Sequence[Mapping[str, int]]) -> dict[int, list[str]]:
    """By rank, the names of tensors that differ from those of most ranks; without a majority, those of all ranks."""
    found: dict[int, list[str]] = {}
    for name in digests[0]:
        values = [own.get(name) for own in digests]
        (usual, count), *others = Counter(values).most_common()
        is_split = bool(others) and others[0][1] == count
        for rank, value in enumerate(values):
            if others and (is_split or value != usual):
                found.setdefault(rank, []).append(name)
    return found


def described(step: int, wrong: Mapping[int, str], devices: Sequence[str]) -> str:
    """One sentence on what is ``wrong``, by rank, in an update."""
    where = "; ".join(f"on rank {rank} ({devices[rank]}) {what}" for rank, what in wrong.items())
    return f"silent data corruption in update {step}: {where}."


def device_in_words(device: torch.device) -> str:
    """A device in words; a GPU with its UUID."""
    if device.type != "cuda":
        return str(device)
    return f"{device}, GPU-{torch.cuda.get_device_properties(device).uuid}"
