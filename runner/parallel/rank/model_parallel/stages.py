"""A model cut into stages, each of which runs the user's own forward pass from one module up to another.

Earlier modules are not computed: they run on the meta device, where tensors have shapes and no data. The end of the
stage leaves the forward pass by an exception. So models need no changes, and all parameters keep their names.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.model_parallel.flow import Flow
from manyheads.runner.parallel.rank.structure import call

SHOWN = 8  # names of modules in an error


class StageWindow(NamedTuple):
    """A stage. ``begin``, ``end``: the modules where it begins and before which it ends; None for the model's own."""

    number: int
    begin: str | None
    end: str | None


def choose_windows(flow: Flow, model: nn.Module, count: int, wanted: str | Sequence[str]) -> list[StageWindow]:
    """Cut a model into ``count`` stages, in order.

    ``wanted``: names of the modules where the second and all later stages begin, or "auto", which minimizes the number
    of parameters of the largest stage. Raises ConfigurationError if the model cannot be cut there.
    """
    places = flow.places()
    names = [*places]
    if not isinstance(wanted, str):
        _check_names(wanted, names, flow, count)
        starts = sorted(wanted, key=names.index)
    else:
        if len(names) < count - 1:
            raise ConfigurationError.at(
                "parallel",
                "pipeline",
                f": {type(model).__name__} can be cut at {len(names)} points, too few for {count} "
                f"stages. {_obstacle(flow)}Set parallel=fsdp, or a smaller number of stages.",
            )
        starts = _balanced(flow, model, places, count)
    bounds = [None, *starts, None]
    return [StageWindow(number, bounds[number], bounds[number + 1]) for number in range(count)]


def _check_names(wanted: Sequence[str], names: list[str], flow: Flow, count: int) -> None:
    for name in wanted:
        if name not in names:
            why = _why_not(name, flow)
            raise ConfigurationError(
                f"parallel.stages: no stage can begin at {name}: {why}. It can at {', '.join(names[:SHOWN])}"
                f"{', ...' if len(names) > SHOWN else ''}.",
                key="parallel.stages",
            )
    if len(set(wanted)) != count - 1:
        raise ConfigurationError(
            f"parallel.stages names {len(set(wanted))} modules, where the {count} stages need {count - 1}: the "
            "first stage begins with the model. Name that many, or set it to auto.",
            key="parallel.stages",
        )


def _why_not(name: str, flow: Flow) -> str:
    calls = [called for called in flow.calls if called.name == name]
    if not calls:
        return "the model has no such module, or does not call it"
    if len(calls) > 1:
        return f"it is called {len(calls)} times"
    if len(calls[0].given) != 1:
        return f"it takes {len(calls[0].given)} tensors"
    others = flow.beside(calls[0])
    kinds = "tensor bypasses it" if others == 1 else "tensors bypass it"
    return f"{others} more {kinds}, for later use" if others else "it is the model's first module"


def _obstacle(flow: Flow) -> str:
    """A sentence on the model's top-level modules at which no stage can begin, and why; empty if there are none."""
    parts = list(dict.fromkeys(called.name for called in flow.calls if called.name and "." not in called.name))
    reasons = [f"{name}, because {_why_not(name, flow)}" for name in parts if name not in flow.places()][:3]
    return f"None can begin at {'; nor at '.join(reasons)}. " if reasons else ""


def _balanced(flow: Flow, model: nn.Module, places: dict[str, Any], count: int) -> list[str]:
    """The first unit of each stage, so that the largest stage is as small as possible; ties go to the most even."""
    sizes = {name: tensor.numel() for name, tensor in model.named_parameters()}
    names, moments = [*places], [0, *(called.begin for called in places.values()), float("inf")]

    @cache
    def size(first: int, last: int) -> int:
        return sum(sizes.get(name, 0) for name in flow.used_between(int(moments[first]), moments[last]))

    best: list[dict[int, tuple[int, int, tuple[int, ...]]]] = [{0: (0, 0, ())}]
    for _ in range(count):
        by_last: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for first, (largest, squares, chosen) in best[-1].items():
            for last in range(first + 1, len(moments)):
                window_size = size(first, last)
                candidate = (max(largest, window_size), squares + window_size * window_size, (*chosen, last))
                if last not in by_last or candidate < by_last[last]:
                    by_last[last] = candidate
        best.append(by_last)
    return [names[moment - 1] for moment in best[-1][len(moments) - 1][2][:-1]]


class StageBoundary(BaseException):
    """The forward pass has reached the end of its stage. ``tensor``: the stage's output."""

    def __init__(self, tensor: Tensor):
        super().__init__()
        self.tensor = tensor


class Stages:
    """This rank's stages of a model, which share its modules.

    ``windows``: all stages of the model; ``mine``: the numbers of this rank's.
    """

    def __init__(self, model: nn.Module, flow: Flow, windows: list[StageWindow], mine: Sequence[int]):
        self.model, self.windows, self.mine = model, windows, mine
        self.holders: dict[str, set[int]] = {}  # stages that use a parameter or buffer, by its name
        begins = {called.name: called.begin for called in flow.calls}
        self._moments = [begins[window.begin] if window.begin else 0 for window in windows]
        for window in windows:
            end = begins[window.end] if window.end else float("inf")
            for name in flow.used_between(self._moments[window.number], end):
                self.holders.setdefault(name, set()).add(window.number)
        self._active: StageWindow | None = None
        self._is_inside = True
        self._received: Tensor | None = None
        self._skipped: dict[str, Any] = {}  # outputs of the modules that this stage does not run
        self._leave_out()
        self._hook(flow)

    def holds(self, name: str) -> bool:
        """Whether this rank has a parameter or buffer: one of its stages uses it; the first stage has unused ones."""
        return bool(self.holders.get(name, {0}) & {*self.mine})

    def run(self, window: StageWindow, given: Any, flow: Flow, received: Tensor | None) -> Any:
        """The output of a stage: a tensor for the next one, or the model's own output.

        ``given``: the model's inputs, on meta except for the first stage; ``flow``: the flow for such inputs;
        ``received``: the previous stage's output.
        """
        self._active, self._received, self._is_inside = window, received, window.begin is None
        self._skipped = flow.done_before(window.begin)
        try:
            return call(self.model, given)
        except StageBoundary as left:
            return left.tensor
        finally:
            self._active = None

    def _leave_out(self) -> None:
        """Replace the tensors of other stages by empty ones on meta."""
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if self.holds(name):
                continue
            for module in self.model.modules():  # one tensor may have several names
                for tensors in (module._parameters, module._buffers):
                    for attribute in [key for key, value in tensors.items() if value is tensor]:
                        del tensors[attribute]
                        object.__setattr__(module, attribute, torch.empty_like(tensor, device="meta").detach())

    def _hook(self, flow: Flow) -> None:
        windows = self.windows
        bounds = {name for number in self.mine for name in self.windows[number][1:] if name is not None}
        for name, module in self.model.named_modules():
            if name in bounds:
                module.register_forward_pre_hook(self._at(name), with_kwargs=True)
            if any(name in flow.done_before(windows[number].begin) for number in self.mine):
                self._make_skippable(name, module)

    def _at(self, name: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            window = self._active
            if window is None:  # activations are being recomputed
                return None
            if name == window.end:
                (tensor,) = [argument for argument in (*args, *kwargs.values()) if isinstance(argument, Tensor)]
                raise StageBoundary(tensor)
            if name == window.begin:
                self._is_inside = True
                swap = lambda argument: self._received if isinstance(argument, Tensor) else argument  # noqa: E731
                return tuple(map(swap, args)), {key: swap(value) for key, value in kwargs.items()}
            return None

        return hook

    def _make_skippable(self, name: str, module: nn.Module) -> None:
        """Make a module return its traced output on meta, instead of running, until the stage begins."""
        plain_forward = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._active is not None and not self._is_inside and name in self._skipped:
                return self._skipped[name]
            return plain_forward(*args, **kwargs)

        module.forward = forward
