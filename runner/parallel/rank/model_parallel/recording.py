"""Records how a constructor computes a model's large tensors, which take no space until they are computed again.

Until then they are tensors like any other, of memory that is never touched. Random numbers are drawn as usual and
dropped, so that everything else gets the numbers it would have had; with the generator's state before, they can be
drawn again.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.sharded.rank.read_sharded import memory
from manyheads.runner.parallel.rank.model_parallel.recorded import (
    GivenTensor,
    OperationRecord,
    RecordedOperation,
    StorageView,
    Unrecordable,
    tensor_in,
)
from manyheads.runner.parallel.rank.structure import map_tensors, tensors_in

LARGE = 2**10  # elements; smaller tensors are computed at once
aten = torch.ops.aten
FACTORIES = {aten.empty, aten.empty_strided, aten.zeros, aten.ones, aten.full, aten.rand, aten.randn}
# Random operations that depend on nothing but the shape of the tensor that they fill.
FILLERS = {
    aten.normal_,
    aten.uniform_,
    aten.exponential_,
    aten.random_,
    aten.cauchy_,
    aten.log_normal_,
    aten.geometric_,
}
OVERWRITE = {*FILLERS, aten.zero_, aten.fill_, aten.copy_}  # what a tensor held before does not matter
RESHAPE = {aten.t_, aten.transpose_, aten.squeeze_, aten.unsqueeze_, aten.detach_}  # in place, without its values
BESIDE = {
    "numpy",
    "tolist",
    "data_ptr",
    "__array__",
    "__dlpack__",
    "share_memory_",
}  # reach memory past torch's operations


class _Refusing(TorchFunctionMode):
    """Refuses what would read or write the untouched memory past torch's operations."""

    def __init__(self, knows: Callable[[Any], bool]):
        super().__init__()
        self._knows = knows

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") in BESIDE and any(map(self._knows, args)):
            raise Unrecordable(f"it calls Tensor.{function.__name__}")
        return function(*args, **(kwargs or {}))


class OperationRecorder(TorchDispatchMode):
    """Records operations while it is active. ``beat``: called now and then."""

    def __init__(self, beat: Callable[[], object]):
        super().__init__()
        self._beat, self._refusing = beat, _Refusing(self.knows)
        self.recorded = OperationRecord()
        self._numbers: dict[int, int] = {}  # of a storage, by its id
        self._storages: list[torch.UntypedStorage] = []  # kept, so that ids are unique
        self._tensors: list[weakref.ref[Tensor]] = []

    def __enter__(self) -> "OperationRecorder":
        self._refusing.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._refusing.__exit__(*error)

    def knows(self, tensor: Any) -> bool:
        """Whether this is a recorded tensor, without values."""
        return isinstance(tensor, Tensor) and tensor.layout is torch.strided and self._id(tensor) in self._numbers

    def view(self, tensor: Tensor) -> StorageView:
        """A recorded tensor in its storage."""
        number = self._numbers[self._id(tensor)]
        return StorageView(number, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype)

    def beside(self, tensors: list[Tensor]) -> bool:
        """Whether a recorded tensor exists in another storage than these have."""
        ids = {self._id(tensor) for tensor in tensors}
        return any(self._id(tensor) not in ids for one in self._tensors if (tensor := one()) is not None)

    def forget(self) -> None:
        """Refer to no tensor any more, which torch could not replace then."""
        self._tensors = []

    @staticmethod
    def _id(tensor: Tensor) -> int:
        return id(tensor.untyped_storage())

    # -- recording -----------------------------------------------------------------------------------

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, given = kwargs or {}, [*tensors_in((args, kwargs))]
        if any(type(tensor) not in (Tensor, torch.nn.Parameter) for tensor in given):
            raise Unrecordable("it uses tensors of a class of their own")
        if any(map(self.knows, given)):
            return self._of_recorded(function, args, kwargs)
        is_here = str(kwargs.get("device") or "cpu") == "cpu"
        if given or not is_here or function.overloadpacket not in FACTORIES:
            return function(*map_tensors(_present, args), **map_tensors(_present, kwargs))
        shaped = function(*args, **{**kwargs, "device": "meta"})
        if shaped.numel() < LARGE or shaped.layout is not torch.strided:
            return function(*args, **kwargs)
        is_random = torch.Tag.nondeterministic_seeded in function.tags
        state = self._drawn(lambda: function(*args, **kwargs), kwargs) if is_random else None
        return self._record(function, args, kwargs, self._untouched(shaped), state)

    def _of_recorded(self, function: Any, args: Any, kwargs: Any) -> Any:
        """An operation on tensors of which one is recorded at least."""
        kind, changed, returns = function.overloadpacket, _changed(function, args, kwargs), function._schema.returns
        if torch.Tag.inplace_view in function.tags:
            if kind not in RESHAPE:
                raise Unrecordable(f"it calls {kind.__name__}")
            return function(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in function.tags:
            if kind not in FILLERS or len([*tensors_in((args, kwargs))]) > 1:
                return self._computed(function, args, kwargs)
            target = args[0]
            like, size = self.view(target), target.untyped_storage().nbytes()
            state = self._drawn(lambda: function(tensor_in(memory(size), like), *args[1:], **kwargs), kwargs)
            return self._record(function, args, kwargs, target, state)
        if not all(map(self.knows, changed)) or not all("Tensor" in str(output.type) for output in returns):
            return self._computed(function, args, kwargs)
        if changed:
            output = None if not returns else changed[0] if len(returns) == 1 else tuple(changed)
            return self._record(function, args, kwargs, output, None)
        if any(output.alias_info is not None for output in returns):
            return function(*args, **kwargs)  # a view
        try:
            here = {"device": torch.device("meta")} if kwargs.get("device") is not None else {}
            shaped = function(*map_tensors(_hollow, args), **{**map_tensors(_hollow, kwargs), **here})
        except Exception:  # a shape that depends on values
            return self._computed(function, args, kwargs)
        return self._record(function, args, kwargs, map_tensors(self._untouched, shaped), None)

    def _computed(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The operation's real result, for which recorded tensors are computed; none of those may change."""
        if any(map(self.knows, _changed(function, args, kwargs))):
            raise Unrecordable(f"{function} changes a tensor by values")
        compute = lambda tensor: self.recorded.value(self.view(tensor)) if self.knows(tensor) else _present(tensor)  # noqa: E731
        return function(*map_tensors(compute, args), **map_tensors(compute, kwargs))

    def _record(self, function: Any, args: Any, kwargs: Any, output: Any, state: Tensor | None) -> Any:
        changed = _changed(function, args, kwargs)
        writes = {self.view(tensor).storage for tensor in changed}
        fresh = [*tensors_in(output)] if not changed else []
        arguments = map_tensors(self._constant, (args, kwargs))
        reads = {self.view(tensor).storage for tensor in tensors_in((args, kwargs)) if self.knows(tensor)}
        if function.overloadpacket in OVERWRITE and self._is_all(args[0]):
            reads = {self.view(tensor).storage for tensor in tensors_in(args[1:]) if self.knows(tensor)}
        self.recorded.steps.append(
            RecordedOperation(function, arguments, [*map(self.view, fresh)], reads, writes, state)
        )
        return output

    def _is_all(self, tensor: Tensor) -> bool:
        return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()

    def _drawn(self, draw: Callable[[], Any], kwargs: Any) -> Tensor:
        """The generator's state before it has drawn what is dropped."""
        generator = kwargs.get("generator")
        state: Tensor = torch.get_rng_state() if generator is None else generator.get_state()
        draw()
        self._beat()
        return state

    def _untouched(self, shaped: Tensor) -> Tensor:
        """A tensor of this shape, in memory of its own that takes no space until it is touched."""
        if shaped.layout is not torch.strided or shaped.is_conj() or shaped.is_neg():
            raise Unrecordable("it computes a tensor of a form of its own")
        size = shaped.untyped_storage().nbytes()
        storage = memory(size)
        offset = int(shaped.storage_offset())
        tensor = tensor_in(storage, StorageView(0, tuple(shaped.shape), shaped.stride(), offset, shaped.dtype))
        self._numbers[id(storage)] = len(self._storages)
        self.recorded.sizes.append(size)
        self._storages.append(storage)
        self._tensors.append(weakref.ref(tensor))
        return tensor

    def _constant(self, tensor: Tensor) -> StorageView | GivenTensor:
        if self.knows(tensor):
            return self.view(tensor)
        if (stored := getattr(tensor, "stands_for", None)) is not None:
            return GivenTensor(stored)
        return GivenTensor(tensor, tensor._version) if tensor.numel() >= LARGE else GivenTensor(tensor.clone())


def _changed(function: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation changes in place."""
    values = [
        args[number] if number < len(args) else kwargs.get(argument.name)
        for number, argument in enumerate(function._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [*tensors_in(values)]


def _hollow(tensor: Tensor) -> Tensor:
    """A tensor of the same shape without memory; numbers are kept."""
    if not tensor.ndim:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _present(tensor: Tensor) -> Tensor:
    """The tensor, or that on disk for which it stands."""
    return real(getattr(tensor, "stands_for", tensor))
