"""A model on the meta device, whose tensors get their values after it is divided, one at a time.

So host memory holds a rank's part of it and one complete tensor, however large it is.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.sharded.rank.read_sharded import Stored
from manyheads.runner.parallel.rank.model_parallel.own_parts import local
from manyheads.runner.parallel.rank.model_parallel.recording import OperationRecorder
from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Cut
from manyheads.runner.parallel.rank.structure import map_tensors

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel

Part = Callable[[str, Any], Any]  # of a complete tensor of this name, which may be on disk


class Deferred:
    """The values of a recorded model's large tensors, which are put on meta here.

    ``builds``: builds the model with all values, as usual, in case an operation can't be repeated.
    """

    def __init__(self, recording: OperationRecorder, model: nn.Module, builds: Callable[[], nn.Module]):
        self._recorded, self._builds = recording.recorded, builds
        self._plain: dict[str, Tensor] | None = None
        recording.forget()
        recorded = {name: tensor for name, tensor in tensors_of(model).items() if recording.knows(tensor)}
        self._views = {name: recording.view(tensor) for name, tensor in recorded.items()}
        for tensor in {id(tensor): tensor for tensor in recorded.values()}.values():
            _move(tensor, torch.device("meta"))

    @property
    def defers(self) -> bool:
        return bool(self._views)

    def value(self, name: str) -> Tensor:
        """The complete tensor of this name, on the CPU."""
        if self._plain is None:
            try:
                return self._recorded.value(self._views[name])
            except Exception:  # as its operations raise when they are repeated
                self._plain = tensors_of(self._builds())
        return self._plain[name].detach()

    def fill(self, model: nn.Module, part: Part, *, device: torch.device, beat: Callable[[], object]) -> None:
        """Give the tensors of the divided model their values, on the device. ``part``: returns this rank's."""
        waiting = {id(tensor): (name, tensor) for name, tensor in tensors_of(model).items() if tensor.is_meta}
        for _, tensor in waiting.values():
            _move(tensor, device)
        model.to(device)  # which also tells FSDP of its new shards
        for name, tensor in [(name, tensors_of(model)[name]) for name, _ in waiting.values()]:
            stored = self._recorded.stored(self._views[name]) if self._plain is None else None
            value = real(part(name, stored if isinstance(stored, Stored) else self.value(name)))
            with torch.no_grad():
                local(tensor).copy_(local(value))
            beat()

    def complete(self, model: nn.Module, *, beat: Callable[[], object]) -> None:
        """Give the complete model, on the CPU, its values."""
        self.fill(model, lambda name, tensor: tensor, device=torch.device("cpu"), beat=beat)

    def move(self, model: nn.Module, device: torch.device) -> None:
        """Move what already has values to the device."""
        for tensor in tensors_of(model).values():
            if not tensor.is_meta:
                tensor.data = tensor.to(device)

    @contextmanager
    def present(self, model: nn.Module, ranks: "ModelParallel", cuts: Mapping[str, Cut] | None) -> Iterator[None]:
        """A context in which the model can be called: each operation is given the values that it takes.

        ``cuts``: how its parameters have been cut, for a model on the rank's device; None for the complete one.
        """

        def value(name: str) -> Tensor:
            ranks.beat()
            tensor = self.value(name)
            if cuts is None:
                return tensor
            if (cut := cuts.get(name)) is not None:
                tensor = cut.part(tensor, ranks.place_in.tensor, ranks.sizes.tensor)
            return tensor.to(ranks.device)

        names = {id(tensor): name for name, tensor in tensors_of(model).items() if tensor.is_meta}
        with torch.compiler.set_stance("force_eager"), _Given(names, value):
            yield


class _Given(TorchDispatchMode):
    """Gives operations the values of tensors on meta. ``names``: by id of a tensor."""

    def __init__(self, names: dict[int, str], value: Callable[[str], Tensor]):
        super().__init__()
        self._names, self._value = names, value

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*map_tensors(self._filled, args), **map_tensors(self._filled, kwargs or {}))

    def _filled(self, tensor: Tensor) -> Tensor:
        return self._value(self._names[id(tensor)]) if id(tensor) in self._names else tensor


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, of which some may be the same."""
    return dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])


def _move(tensor: Tensor, device: torch.device) -> None:
    """Put a tensor on the device without its values; whatever refers to it sees it there."""
    moved = torch.empty_like(tensor, device=device)
    if isinstance(tensor, nn.Parameter):
        moved = nn.Parameter(moved, requires_grad=tensor.requires_grad)
        moved.__dict__ |= {name: value for name, value in tensor.__dict__.items() if name not in moved.__dict__}
    torch.utils.swap_tensors(tensor, moved)
