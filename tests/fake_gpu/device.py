"""A CUDA device of shapes and dtypes only: its tensors are torch's fake ones, while all on the CPU is real.

Copies from it are zeros. Backward passes run in autograd's own engine, which refuses a CUDA device that does not exist:
it sees the tensors as meta ones, and factories that it asks for meta tensors make CUDA ones.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from manyheads.runner.answers.measure.rank.fake_models import plain_conversion
from tests.fake_gpu import cuda_module
from tests.fake_gpu.values import VALUES, without_masks
from tests.fake_gpu.waits import INDEXING, Wait, reason

CUDA, META = torch.device("cuda", 0), torch.device("meta")
DEVICE = torch.ops.prim.device.default
PRODUCTS = {
    *(torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose2d, functional.linear),
    *(torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, Tensor.matmul, Tensor.__matmul__),
    *(torch.einsum, functional.scaled_dot_product_attention),
}
FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")


def on_gpu(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.fake_device.type == "cuda"


ATTRIBUTES: dict[Any, dict[str, Any]] = {  # what torch's classes say of such tensors, by class
    Tensor: {"record_stream": lambda tensor, stream: None, "pin_memory": lambda tensor, device=None: tensor},
    FakeTensor: {"is_cuda": property(on_gpu), "is_meta": property(lambda tensor: False)},
    DTensor: {name: property(attrgetter(f"_local_tensor.{name}")) for name in ("device", "is_meta")},
    fake_tensor: {"init_gpu_context": lambda device: None},
}


def _of_cuda(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keywords in which the device is the GPU where autograd takes it for meta."""
    device = kwargs.get("device")
    return {**kwargs, "device": CUDA} if device is not None and torch.device(device).type == "meta" else kwargs


class _Shapes(FakeTensorMode):
    """Computes shapes; what an operation is made of may also make tensors."""

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return META if func is DEVICE else super().dispatch(func, types, args, _of_cuda(dict(kwargs or {})))


class FakeGPU(TorchDispatchMode):
    """``waits``: the operations for which the host would wait until the GPU has done all its work, while ``runs``."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes = _Shapes(allow_non_fake_inputs=True)
        self.waits: list[Wait] = []
        self.runs = False

    @contextmanager
    def present(self) -> Iterator[None]:
        """A context in which torch finds this GPU."""
        of_cuda = cuda_module.replacements(self.note)
        with ExitStack() as stack:
            for owner, attributes in {**of_cuda, **ATTRIBUTES}.items():
                for name, value in attributes.items():
                    stack.enter_context(patch.object(owner, name, value, create=owner in ATTRIBUTES))
            quiet = patch.object(FAKE_LOG, "disabled", True)
            for context in (_made_on_the_cpu(), plain_conversion(), quiet, _AsOnCUDA(), self):
                stack.enter_context(context)
            yield

    @contextmanager
    def watched(self) -> Iterator[list[Wait]]:
        """A context of updates; the list gets their waits."""
        self.waits.clear()
        self.runs = True
        try:
            yield self.waits
        finally:
            self.runs = False

    def note(self, operation: str) -> None:
        """Record a wait at the project's innermost line."""
        if self.runs:
            self.waits.append(Wait(operation, _line()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DEVICE:
            return META
        if DTensor in types:  # dispatched again with its local tensors
            return NotImplemented
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)
        is_on_gpu = any(map(on_gpu, tree_leaves((args, kwargs))))
        if is_on_gpu or self.runs:
            kwargs = _of_cuda(kwargs)
        device = kwargs.get("device")
        if not is_on_gpu and (device is None or torch.device(device).type != "cuda"):
            return func(*args, **kwargs)
        if why := reason(func, args, kwargs):
            self.note(why)
        return self._computed(func, args, kwargs)

    def _computed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = func.overloadpacket.__name__
        if name == "copy_" and not on_gpu(args[0]):
            return args[0]
        if not func._schema.returns:  # changes its tensors in place, as fused optimizers do
            return None
        with self.shapes:
            args, kwargs = tree_map(_shape, (args, kwargs))
            if (make := VALUES.get(name)) is not None:
                return make(*args, **kwargs)
            if name in INDEXING:
                args = args[0], without_masks(args[1]), *args[2:]
            results = func(*args, **kwargs)
        if name == "any":  # of what is looked for, nothing is found
            results.is_false = True
        return tree_map(_real, results)


class _AsOnCUDA(TorchFunctionMode):
    """What torch's own code does for CUDA tensors only, while it takes these for meta: autocast of products, no copies.

    A tensor that is on the GPU already is moved there by returning it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.to and on_gpu(args[0]) and "copy" not in (kwargs or {}):
            device, dtype, _, memory_format = torch._C._nn._parse_to(*args[1:], **(kwargs or {}))
            if device == CUDA and dtype in (None, args[0].dtype) and memory_format is None:
                return args[0]
        if func in PRODUCTS and torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            args, kwargs = tree_map(lambda value: value.to(dtype) if _is_float(value) else value, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _is_float(value: Any) -> bool:
    return on_gpu(value) and value.dtype in (torch.float32, torch.float16, torch.bfloat16)


@contextmanager
def _made_on_the_cpu() -> Iterator[None]:
    """A context in which torch.tensor makes a CPU tensor, which is then copied, as FakeTensorMode has it."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def _shape(value: Any) -> Any:
    """A fake tensor like a real one."""
    if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _real(value: Any) -> Any:
    """Zeros for a fake tensor on the CPU."""
    if isinstance(value, FakeTensor) and not on_gpu(value):
        return torch.zeros(value.shape, dtype=value.dtype)
    return value


def _line() -> str:
    """The project's innermost function, as file:name, below runner/."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        _, package, path = frame.f_code.co_filename.partition("/manyheads/runner/")
        if package:
            return f"{path}:{frame.f_code.co_qualname.partition('.<locals>')[0]}"
        frame = frame.f_back
    return "?"
