"""Traces how tensors flow through a model's modules, in one forward pass without arithmetic on the meta device."""

import copy
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.structure import call, map_tensors, tensors_in


@dataclass
class Called:
    """One call of a module, from operation number ``begin`` to ``end``. ``given``: its tensors; ``output``: on meta."""

    name: str
    begin: int
    given: list[Tensor]
    end: int = -1
    output: Any = None


@dataclass
class Flow:
    """A traced forward pass.

    ``calls``: those of modules, in the order in which they begin; ``uses``: the numbers of the operations that use a
    parameter or buffer, by its name.
    """

    calls: list[Called] = field(default_factory=list)
    uses: dict[str, list[int]] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)  # by id of a tensor, the operation that made it
    last_use: dict[int, int] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)  # keeps ids unique
    given: Any = None  # the model's inputs, on meta
    output: Any = None
    _done: dict[str | None, dict[str, Any]] = field(default_factory=dict)

    def done_before(self, name: str | None) -> dict[str, Any]:
        """Outputs on meta of the modules whose calls have ended when that of ``name`` begins, by module name."""
        if name not in self._done:
            begin = next((called.begin for called in self.calls if called.name == name), -1)
            self._done[name] = {
                called.name: called.output for called in self.calls if called.name and called.end <= begin
            }
        return self._done[name]

    def places(self) -> dict[str, Called]:
        """Calls before which the model can be cut, by module name, in order: exactly one tensor crosses the cut."""
        counts = Counter(called.name for called in self.calls)
        by_begin: dict[int, Called] = {}
        for called in self.calls:
            fits = called.name and counts[called.name] == 1 and len(called.given) == 1 and called.begin > 0
            if fits and called.given[0].is_floating_point() and not self.beside(called):
                by_begin.setdefault(called.begin, called)  # of calls that begin together, the outermost
        return {called.name: called for called in by_begin.values()}

    def beside(self, called: Called) -> int:
        """Number of tensors that bypass a call: created before it, and used later other than as its input."""
        (given,) = called.given
        later = {key for key, moment in self.made.items() if moment <= called.begin < self.last_use.get(key, -1)}
        return len(later - {id(given)}) + (self.last_use.get(id(given), -1) > called.end)

    def used_between(self, begin: int, end: float) -> set[str]:
        """Names of the parameters and buffers used by the operations in (``begin``, ``end``]."""
        return {name for name, uses in self.uses.items() if any(begin < use <= end for use in uses)}


def twin_of(model: nn.Module) -> nn.Module:
    """A copy of the model on meta, which takes no memory. Raises ConfigurationError if it cannot be copied."""
    try:
        with unset_fake_temporarily():
            memo: dict[int, Any] = {id(buffer): _hollow(buffer) for buffer in model.buffers()}
            for weight in model.parameters():
                memo[id(weight)] = nn.Parameter(_hollow(weight), requires_grad=weight.requires_grad)
            return copy.deepcopy(model, memo)
    except Exception as error:
        raise ConfigurationError.at(
            "parallel",
            "pipeline",
            f": {type(model).__name__} can't be copied ({error}), which tracing it requires. Set parallel=fsdp.",
        ) from error


def follow(twin: nn.Module, inputs: Any) -> Flow:
    """Trace a model on meta for inputs of these shapes. Raises ConfigurationError if the flow depends on the data."""
    flow = Flow()
    whose = {id(tensor): name for name, tensor in [*twin.named_parameters(), *twin.named_buffers()]}
    operations = _Operations(flow, whose)
    with unset_fake_temporarily():
        given = map_tensors(_hollow, inputs)
    flow.made = {id(tensor): 0 for tensor in tensors_in(given)}
    flow.alive, flow.given = [given], given
    try:
        with _Calls(flow, operations, twin), torch.no_grad(), unset_fake_temporarily(), operations:
            flow.output = call(twin, given)
    except Exception as error:
        where = next((called for called in reversed(flow.calls) if called.end < 0), None)
        module = f"{where.name} ({type(twin.get_submodule(where.name)).__name__})" if where else type(twin).__name__
        raise ConfigurationError.at(
            "parallel",
            "pipeline",
            f": {module} cannot be traced without data: {str(error).splitlines()[0]}. What a layer "
            "does must not depend on the values in its tensors. Set parallel=fsdp, which does not trace the model.",
        ) from error
    return flow


def entering(name: str | None, flow: Flow) -> Tensor:
    """The input tensor of the module ``name``, on meta."""
    return next(called.given[0] for called in flow.calls if called.name == name)


def _hollow(tensor: Tensor) -> Tensor:
    """An empty tensor like this one on meta; also for a FakeTensor, whose own empty_like would be fake again."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class _Operations(TorchDispatchMode):
    """Numbers the operations, and records the inputs and outputs of each."""

    def __init__(self, flow: Flow, whose: dict[int, str]):
        super().__init__()
        self.flow, self.whose, self.number = flow, whose, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flow = self.flow
        self.number += 1
        for tensor in tensors_in((args, kwargs)):
            if (name := self.whose.get(id(tensor))) is not None:
                flow.uses.setdefault(name, []).append(self.number)
            else:
                flow.last_use[id(tensor)] = self.number
        output = func(*args, **(kwargs or {}))
        for tensor in tensors_in(output):
            if id(tensor) not in self.whose:
                flow.made.setdefault(id(tensor), self.number)
                flow.alive.append(tensor)
        return output


class _Calls(ExitStack):
    """A context in which the calls of a model's modules are recorded in their flow."""

    def __init__(self, flow: Flow, operations: _Operations, model: nn.Module):
        super().__init__()
        self.flow, self.operations = flow, operations
        for name, module in model.named_modules():
            self.enter_context(module.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True))
            self.enter_context(module.register_forward_hook(self._leave))

    def _enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.flow.calls.append(Called(name, self.operations.number, [*tensors_in((args, kwargs))]))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        done = next(called for called in reversed(self.flow.calls) if called.end < 0)  # the innermost one
        done.end, done.output = self.operations.number, output
