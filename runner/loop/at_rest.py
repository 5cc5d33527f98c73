"""Digests of weights and optimizer state after an update, compared before they are changed or stored again."""

from typing import TYPE_CHECKING

from torch import Tensor

from manyheads.runner.loop.bits import Digests
from manyheads.runner.loop.corruption import Corrupted, described, device_in_words, other_replicas
from manyheads.runner.wording import listed

if TYPE_CHECKING:
    from manyheads.runner.loop.update import Update


class AtRest:
    """This rank's part of the weights and of the optimizer's state, which nothing changes between two updates."""

    def __init__(self, update: "Update"):
        self._update, self._parallel = update, update.parallel
        self._noted: tuple[int, Digests] | None = None

    def note(self, step: int) -> None:
        """Digest all tensors after update ``step``; all ranks call it. Raises Corrupted if a replica differs."""
        self._noted = step, Digests(self._tensors())
        if not self._parallel.is_replica:
            return
        weights = self._weights()
        own = {name: value for name, value in self._noted[1].values().items() if name in weights}
        everyone = self._parallel.gather((own, device_in_words(self._parallel.device)))
        if odd := other_replicas([values for values, _ in everyone]):
            wrong = {rank: f"{listed(names)} differ from those on other ranks after it" for rank, names in odd.items()}
            text = described(step, wrong, [device for _, device in everyone])
            raise Corrupted(f"{text} Nothing of it was stored. Resume the run.", is_here=self._parallel.rank in odd)

    def check(self) -> None:
        """Compare all tensors with the noted digests, if any. Raises Corrupted, on the rank where they differ."""
        if self._noted is None:
            return
        step, before = self._noted
        if differing := before.differing(Digests(self._tensors())):
            device = device_in_words(self._parallel.device)
            raise Corrupted(
                f"silent data corruption after update {step}: on rank {self._parallel.rank} ({device}) "
                f"{listed(differing)} changed, although nothing writes there between two updates. Nothing of it was "
                "stored. Resume the run, and replace the device's memory if it happens there again.",
                is_here=True,
            )

    def forget(self) -> None:
        """Forget the noted digests, before the tensors are changed on purpose."""
        self._noted = None

    def _weights(self) -> dict[str, Tensor]:
        """The weights. If ranks share a model, the optimizer's parts: the model's own may be gathered or not."""
        update, parallel = self._update, self._parallel
        found = {name: p.data for name, p in zip(update.names, update.parameters, strict=True)}
        if parallel.shares_model:
            return found
        model = {name: p.data for name, p in parallel.unwrap(update.model).named_parameters()}
        copies = {f"{name} in fp32": value for name, value in found.items() if value.dtype is not model[name].dtype}
        return {**model, **copies}

    def _tensors(self) -> dict[str, Tensor]:
        update, found = self._update, self._weights()
        own: dict[Tensor, str] = dict(zip(update.parameters, update.names, strict=True))
        for parameter, state in self._parallel.optimizer_state(update.optimizer).items():
            name = own[parameter]
            found |= {f"{key} of {name}": each for key, each in state.items() if isinstance(each, Tensor)}
        return found
