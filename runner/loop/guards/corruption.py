"""How silent data corruption shows: in digests of tensors, also of what must not change between two updates.

And which rank is at fault, by the findings of all ranks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.errors import Kind
from manyheads.runner.wording import listed

if TYPE_CHECKING:
    from manyheads.runner.loop.update import Update

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: Tensor) -> Tensor:
    """A tensor's bits as integers of the same width, in the same memory."""
    tensor = as_real(tensor)
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
        return {
            name: value for names, digests in self._found for name, value in zip(names, digests.tolist(), strict=True)
        }

    def differing(self, other: "Digests") -> list[str]:
        """The names whose tensors differ, or that only one of the two has."""
        one, two = self.values(), other.values()
        return [name for name in {**one, **two} if one.get(name) != two.get(name)]


class Corrupted(RuntimeError):
    """Silent data corruption. ``is_here``: whether it was found on this rank, which the run's error then names."""

    def __init__(self, message: str, *, is_here: bool):
        super().__init__(message)
        self.kind = Kind.CORRUPTED if is_here else Kind.LOST_PEER


class Mismatch(NamedTuple):
    """Names of the tensors that differ between two computations of the same gradients on a rank.

    ``own``: its own gradients and losses; ``exchanged``: gradients after the exchange; ``replica``: digests of the
    exchanged gradients, if they must be the same on all ranks.
    """

    device: str
    own: list[str]
    exchanged: list[str]
    replica: Mapping[str, int]


def culprits(everyone: Sequence[Mismatch]) -> dict[int, str]:
    """What is wrong, by rank; empty if nothing is. A rank that only received wrong values is not named."""
    by_rank = {
        rank: list(dict.fromkeys([*mismatch.own, *mismatch.exchanged]))
        for rank, mismatch in enumerate(everyone)
        if mismatch.own
    }
    if by_rank:
        return {rank: f"two computations of {listed(names)} differ" for rank, names in by_rank.items()}
    exchanged = {rank: mismatch.exchanged for rank, mismatch in enumerate(everyone) if mismatch.exchanged}
    if exchanged:
        return {rank: f"the exchanged gradients of {listed(names)} differ" for rank, names in exchanged.items()}
    odd = other_replicas([mismatch.replica for mismatch in everyone])
    return {
        rank: f"the exchanged gradients of {listed(names)} differ from those of other ranks"
        for rank, names in odd.items()
    }


def other_replicas(digests: Sequence[Mapping[str, int]]) -> dict[int, list[str]]:
    """By rank, the names of tensors that differ from those of most ranks; without a majority, those of all ranks."""
    by_rank: dict[int, list[str]] = {}
    for name in digests[0]:
        values = [rank_digests.get(name) for rank_digests in digests]
        (usual, count), *others = Counter(values).most_common()
        is_split = bool(others) and others[0][1] == count
        for rank, value in enumerate(values):
            if others and (is_split or value != usual):
                by_rank.setdefault(rank, []).append(name)
    return by_rank


def described(step: int, wrong: Mapping[int, str], devices: Sequence[str]) -> str:
    """One sentence on what is ``wrong``, by rank, in an update."""
    where = "; ".join(f"on rank {rank} ({devices[rank]}) {what}" for rank, what in wrong.items())
    return f"silent data corruption in update {step}: {where}."


def device_in_words(device: torch.device) -> str:
    """A device in words; a GPU with its UUID."""
    if device.type != "cuda":
        return str(device)
    return f"{device}, GPU-{torch.cuda.get_device_properties(device).uuid}"


class AtRest:
    """This rank's part of the weights and of the optimizer's state, which nothing changes between two updates."""

    def __init__(self) -> None:
        self._noted: tuple[int, Update, Digests] | None = None

    def note(self, update: "Update", step: int) -> None:
        """Digest all tensors after update ``step``; all ranks call it. Raises Corrupted if a replica differs."""
        parallel, digests = update.parallel, Digests(_tensors(update))
        self._noted = step, update, digests
        if not parallel.is_replica:
            return
        weights = _weights(update)
        weight_digests = {name: value for name, value in digests.values().items() if name in weights}
        everyone = parallel.gather((weight_digests, device_in_words(parallel.device)))
        if odd := other_replicas([values for values, _ in everyone]):
            wrong = {rank: f"{listed(names)} differ from those on other ranks after it" for rank, names in odd.items()}
            text = described(step, wrong, [device for _, device in everyone])
            raise Corrupted(f"{text} Nothing of it was stored. Resume the run.", is_here=parallel.rank in odd)

    def check(self) -> None:
        """Compare all tensors with the noted digests, if any. Raises Corrupted, on the rank where they differ."""
        if self._noted is None:
            return
        step, update, before = self._noted
        if differing := before.differing(Digests(_tensors(update))):
            device = device_in_words(update.parallel.device)
            raise Corrupted(
                f"silent data corruption after update {step}: on rank {update.parallel.rank} ({device}) "
                f"{listed(differing)} changed, although nothing writes there between two updates. Nothing of it was "
                "stored. Resume the run, and replace the device's memory if it happens there again.",
                is_here=True,
            )

    def forget(self) -> None:
        """Forget the noted digests, before the tensors are changed on purpose."""
        self._noted = None


def _weights(update: "Update") -> dict[str, Tensor]:
    """The weights. If ranks share a model, the optimizer's parts: the model's own may be gathered or not."""
    parallel = update.parallel
    weights = {name: p.data for name, p in zip(update.names, update.parameters, strict=True)}
    if parallel.shares_model:
        return weights
    model = {name: p.data for name, p in parallel.unwrap(update.model).named_parameters()}
    copies = {f"{name} in fp32": value for name, value in weights.items() if value.dtype is not model[name].dtype}
    return {**model, **copies}


def _tensors(update: "Update") -> dict[str, Tensor]:
    tensors = _weights(update)
    names: dict[Tensor, str] = dict(zip(update.parameters, update.names, strict=True))
    for parameter, state in update.parallel.layout.optimizer_state(update.optimizer).items():
        name = names[parameter]
        tensors |= {f"{key} of {name}": value for key, value in state.items() if isinstance(value, Tensor)}
    return tensors
