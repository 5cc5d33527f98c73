"""Sequence parallelism: finds the modules that can work on a piece of each sequence, and where to split and join them.

Source: Korthikanti et al. 2022 (https://arxiv.org/abs/2205.05198).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.model_parallel.flow import Flow, entering
from manyheads.runner.parallel.rank.model_parallel.sequence_layers import (
    EnterPieces,
    LeavePieces,
    PieceAttention,
    PieceColumnLinear,
    PieceDropout,
    PieceRowLinear,
)
from manyheads.runner.parallel.rank.model_parallel.tensor_layers import ColumnLinear, RowLinear, SplitAttention
from manyheads.runner.parallel.rank.structure import map_tensors, tensors_in

OF_PIECES: dict[type, type] = {
    ColumnLinear: PieceColumnLinear,
    RowLinear: PieceRowLinear,
    SplitAttention: PieceAttention,
    nn.Dropout: PieceDropout,
}
OFF = "or set parallel.sequence=false."


@dataclass(frozen=True)
class Passage:
    """The modules through which sequences pass in pieces.

    ``enters``: those that split their input into pieces; ``leaves``: those that join the pieces of their output;
    ``size``: number of ranks that share a sequence.
    """

    modules: list[str]
    enters: set[str]
    leaves: set[str]
    size: int

    def entering(self, name: str | None, flow: Flow) -> Tensor:
        """The input tensor of a module, on meta: a piece if an earlier stage has split the sequences."""
        tensor = entering(name, flow)
        inner = {*self.modules} - self.enters
        is_piece = any(call.name in inner and call.given and call.given[0] is tensor for call in flow.calls)
        return tensor.chunk(self.size, dim=1)[0] if is_piece else tensor

    def apply(self, model: nn.Module, group: Any) -> None:
        """Convert the modules in place, after their layers were split.

        Raises ConfigurationError for a module that needs more than a piece of each sequence.
        """
        kinds: dict[type, type] = {}
        for name in self.modules:
            module = model.get_submodule(name)
            for inner, part in module.named_modules(prefix=name):
                if isinstance(part, _BatchNorm):
                    raise ConfigurationError.at(
                        "parallel.sequence",
                        True,
                        f": {inner} is of class {type(part).__name__}, whose statistics are "
                        f"those of whole sequences. Leave {name} out of parallel.plan's scattered modules, {OFF}",
                    )
                if type(part) in OF_PIECES:
                    part.__class__ = OF_PIECES[type(part)]
                    part.group = group
            kind = type(module)  # repeated blocks keep a common class
            module.__class__ = kinds.setdefault(kind, type(kind.__name__, (Gate, kind), {}))
            sides = Sides(name, group, self.size, enters=name in self.enters, leaves=name in self.leaves)
            object.__setattr__(module, "_gate", sides)

    def partial(self, model: nn.Module) -> set[str]:
        """Names of the parameters whose gradient on each rank covers only its pieces, including those of split layers.

        Raises ConfigurationError for a parameter that other modules use as well.
        """
        names: dict[int, str] = {}
        inside: set[int] = set()
        outside: set[int] = set()
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), name)
            if any(name.startswith(f"{module}.") for module in self.modules):
                inside.add(id(parameter))
            else:
                outside.add(id(parameter))
        if shared := inside & outside:
            raise ConfigurationError.at(
                "parallel.sequence",
                True,
                f": {names[shared.pop()]} is used by modules that take pieces of sequences and "
                "by others. Set parallel.sequence=false.",
            )
        return {names[module] for module in inside}


@dataclass(frozen=True)
class Sides:
    """The work at the sides of the module ``name``: split its input into pieces, join the pieces of its output."""

    name: str
    group: Any
    size: int
    enters: bool
    leaves: bool


class Gate(nn.Module):
    """Mixed into a module's class, to split its input and join its output as its ``Sides`` say."""

    _gate: Sides

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        gate = self._gate
        if gate.enters:
            args, kwargs = _with_first(self._enter, (args, kwargs))
        output = super().forward(*args, **kwargs)
        return _with_first(lambda piece: LeavePieces.apply(piece, gate.group), output) if gate.leaves else output

    def _enter(self, tensor: Tensor) -> Tensor:
        refuse_shape(self._gate.name, tuple(tensor.shape), self._gate.size)
        return EnterPieces.apply(tensor, self._gate.group)


class Call(NamedTuple):
    """A module's first floating-point input and output tensors in one call."""

    name: str
    given: Tensor | None
    output: Tensor | None


class Watched(ExitStack):
    """A context in which the inputs and outputs of the modules ``names`` are recorded when a model is called."""

    def __init__(self, model: nn.Module, names: Sequence[str]):
        super().__init__()
        self.calls: list[Call] = []
        for name in names:
            hook = partial(self._note, name)
            self.enter_context(model.get_submodule(name).register_forward_hook(hook, with_kwargs=True))

    def _note(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self.calls.append(Call(name, _first((args, kwargs)), _first(output)))

    def passage(self, size: int) -> Passage:
        """The passage of sequences through the recorded modules.

        Raises ConfigurationError if a module does not keep their length, is called several times, or if ``size`` ranks
        cannot share them.
        """
        for name, count in Counter(call.name for call in self.calls).items():
            if count > 1:
                raise ConfigurationError.at(
                    "parallel.sequence", True, f": {name} is called {count} times. Leave it out, {OFF}"
                )
        for name, given, output in self.calls:
            shape, output_shape = (() if tensor is None else tuple(tensor.shape) for tensor in (given, output))
            refuse_shape(name, shape, size)
            if shape[:2] != output_shape[:2]:
                raise ConfigurationError.at(
                    "parallel.sequence",
                    True,
                    f": {name} turns the shape {shape} into {output_shape}; sequences must keep "
                    f"their length. Leave it out of parallel.plan's scattered modules, {OFF}",
                )
        given_later, made_before = {id(call.given) for call in self.calls}, {id(call.output) for call in self.calls}
        return Passage(
            [call.name for call in self.calls],
            {call.name for call in self.calls if id(call.given) not in made_before},
            {call.name for call in self.calls if id(call.output) not in given_later},
            size,
        )


def refuse_shape(name: str, shape: tuple[int, ...], size: int) -> None:
    """Raises ConfigurationError for a shape that ``size`` ranks cannot share as sequences (samples, length, width)."""
    if len(shape) != 3:
        raise ConfigurationError.at(
            "parallel.sequence",
            True,
            f": {name} is given a tensor of shape {shape}, not (samples, length, width): there "
            "is no sequence to share. Set parallel.sequence=false.",
        )
    length = shape[1]
    if length % size:
        fitting = [str(count) for count in range(2, length + 1) if length % count == 0]
        raise ConfigurationError.at(
            "parallel.sequence",
            True,
            f": {name} is given sequences of length {length}, which {size} ranks can't share "
            f"evenly. Ranks that can: {', '.join(fitting) or 'one only'}. Set such a tensor size, a length that "
            f"{size} divides, {OFF}",
        )


def _first(value: Any) -> Tensor | None:
    return next((tensor for tensor in tensors_in(value) if tensor.is_floating_point()), None)


def _with_first(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The structure with ``function`` applied to its first floating-point tensor."""
    first = _first(value)
    return map_tensors(lambda tensor: function(tensor) if tensor is first else tensor, value)
