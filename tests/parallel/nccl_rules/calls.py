"""What a rank asks of torch.distributed, recorded in its order, whoever in torch asks for it."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.parallel.nccl_rules.as_nccl import batches, callbacks_at_once

MESSAGES = {"send": "dst", "recv": "src", "isend": "dst", "irecv": "src"}  # with the argument that names the partner
GROUP = ("process_group", "group_name")  # arguments, of which each call has one
OF_ANY_SHAPE = ("alltoall", "all_to_all")  # each rank may send each other one a part of another length
IGNORED = ("/torch/", "nccl_rules/calls.py", "/contextlib.py")  # files that only pass a call on


class Call(NamedTuple):
    """A call. ``group``, ``ranks``: its communicator; ``partner``: the rank of a message's other end, else None.

    ``tensors``: their shapes and dtypes; ``is_packed``: whether they are dense and contiguous; ``options``: what all
    ranks must agree on besides, such as the root, and a message's tag; ``where``: the line of code.
    """

    name: str
    group: str
    ranks: tuple[int, ...]
    partner: int | None
    tensors: str
    is_packed: bool
    options: str
    where: str

    def __str__(self) -> str:
        ends = {"send": f" to rank {self.partner}", "recv": f" from rank {self.partner}"}.get(self.name, "")
        return f"{self.name}{ends} of {self.tensors or 'nothing'} in the group of ranks {[*self.ranks]} ({self.where})"


Step = tuple[Call, ...]  # one call, or the messages of a batch, which progress together


class Log(NamedTuple):
    """A rank's steps; ``has_ended``: whether it made all of them, without an error."""

    steps: list[Step]
    has_ended: bool


class RecordedCalls(TorchDispatchMode):
    """Writes each call of this rank to a file before it is made."""

    def __init__(self, path: Path):
        super().__init__()
        self._path = path
        self._made: Counter[str] = Counter()  # calls by group
        self._batch: list[Call] = []
        self._is_batch = False

    def __enter__(self) -> Self:
        self._file = open(self._path, "a")
        self._patched = ExitStack()
        self._patched.enter_context(batches(self.batch))
        self._patched.enter_context(callbacks_at_once())
        self._before = _counted_by_torch()
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if kind is None:
            self._write([])
            for group, count in _counted_by_torch().items():
                assert count - self._before.get(group, 0) <= self._made[group], "a call was not recorded"
        self._patched.close()
        self._file.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # dispatched again with its local tensors
            return NotImplemented
        if func.namespace in ("c10d", "_c10d_functional"):
            given = dict(zip([argument.name for argument in func._schema.arguments], args, strict=False))
            if any(name in given for name in GROUP):
                self._note(_call(func._schema.name.partition("::")[2].strip("_"), {**given, **(kwargs or {})}))
        return func(*args, **(kwargs or {}))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A context in which messages progress together."""
        self._batch, self._is_batch = [], True
        try:
            yield
        finally:
            self._is_batch = False
            if self._batch:
                self._write(self._batch)

    def _note(self, call: Call) -> None:
        self._made[call.group] += 1
        if self._is_batch:
            self._batch.append(call)
        else:
            self._write([call])

    def _write(self, calls: list[Call]) -> None:
        self._file.write(json.dumps(calls) + "\n")
        self._file.flush()


def read_log(path: Path) -> Log:
    """The steps of a rank from its file."""
    steps = [
        tuple(
            Call(**dict(zip(Call._fields, fields, strict=True)) | {"ranks": tuple(fields[2])})
            for fields in json.loads(line)
        )
        for line in path.read_text().splitlines()
    ]
    return Log([step for step in steps if step], bool(steps) and not steps[-1])


def _counted_by_torch() -> dict[str, int]:
    """The number of calls that each of this rank's groups over Gloo has counted; torch 2.6 leaves out messages."""
    groups = [group for group in distributed_c10d._world.pg_map if dist.get_backend(group) == "gloo"]
    return {group.group_name: group._get_sequence_number_for_group() for group in groups}


def _call(name: str, given: Mapping[str, Any]) -> Call:
    group = next(given[name] for name in GROUP if name in given)
    if isinstance(group, torch.ScriptObject):
        group = dist.ProcessGroup.unbox(group)
    elif isinstance(group, str):
        group = distributed_c10d._resolve_process_group(group)
    ranks = tuple(dist.get_process_group_ranks(group))
    tensors = [leaf for leaf in tree_leaves([*given.values()]) if isinstance(leaf, Tensor)]
    partner = MESSAGES.get(name)
    if partner is not None:
        options = f"tag {given['tag']}"
    else:
        options = ", ".join(f"{key} {_named(given[key])}" for key in ("reduce_op", "root_rank", "src") if key in given)
    return Call(
        name.removeprefix("i") if partner else name,
        group.group_name,
        ranks,
        None if partner is None else ranks[given[partner]],
        "" if name == "barrier" else ", ".join(_described(tensor, name) for tensor in tensors),
        all(tensor.layout == torch.strided and _is_contiguous(tensor) for tensor in tensors),
        options,
        _where(),
    )


def _named(option: Any) -> Any:
    return dist.ReduceOp.unbox(option).op if isinstance(option, torch.ScriptObject) else option


def _described(tensor: Tensor, name: str) -> str:
    shape = "" if name.startswith(OF_ANY_SHAPE) else f"{tuple(tensor.shape)} "
    return f"{shape}{str(tensor.dtype).removeprefix('torch.')}"


def _is_contiguous(tensor: Tensor) -> bool:
    """As NCCL's process group asks it: images may be channels_last."""
    return any(
        tensor.is_contiguous(memory_format=form)
        for form in (torch.contiguous_format, *([torch.channels_last] if tensor.ndim == 4 else []))
    )


def _where() -> str:
    """The line of code outside torch that led to a call."""
    frame = sys._getframe(2)
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in IGNORED):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
