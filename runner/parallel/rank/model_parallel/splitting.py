"""Verifies that a model computes the same result when its layers are split over ranks."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.model_parallel.sequence import OFF, Passage, Watched
from manyheads.runner.parallel.rank.model_parallel.sequence_layers import own_piece
from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Cut
from manyheads.runner.parallel.rank.model_parallel.tensor_plan import Plan, find_plan, find_scattered
from manyheads.runner.parallel.rank.model_parallel.tensor_split import split
from manyheads.runner.parallel.rank.structure import call, evaluating, map_tensors, tensors_in

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3}  # relative to the largest output; a wrong plan is about 1 off
LOOSE = 5e-2  # for half precision, and across device types
SAMPLES = 2
SHORT = 64  # tokens


class Checked:
    """Compares a model's outputs before and after it is split, on a few samples of ``inputs``.

    ``failure``: why the complete model could not be called, in which case nothing is compared; else empty.
    """

    def __init__(self, model: nn.Module, plan: Plan, inputs: Any, ranks: "ModelParallel"):
        self._model, self._ranks, self._device = model, ranks, ranks.device
        self.failure = ""
        self._parents = [*filter(None, dict.fromkeys(name.rpartition(".")[0] for name in plan)), ""]
        self._inputs = map_tensors(lambda tensor: tensor[:SAMPLES].cpu(), inputs)
        self._entered = ""
        try:
            self._plain: dict[str, Tensor] | None = self._outputs(self._inputs)
        except Exception as error:  # training fails in the same way, and explains it
            self._plain, self.failure = None, str(error).partition("\n")[0] or type(error).__name__

    def compare(self, cuts: Mapping[str, Cut], pieces: Callable[[Tensor], Tensor] | None = None) -> None:
        """Compare the model after it was split. Raises ConfigurationError with the first module that differs.

        ``cuts``: how its parameters were cut; ``pieces``: returns this rank's piece of complete sequences, if it has
        only that between split layers.
        """
        if self._plain is None:
            return
        advice = "Name the right layers in parallel.plan={name: colwise, other: rowwise}, or set parallel=fsdp."
        if pieces is not None:
            advice = f"Set parallel.sequence=false, or: {advice[0].lower()}{advice[1:]}"
        try:
            outputs = self._outputs(map_tensors(lambda tensor: tensor.to(self._device), self._inputs), cuts)
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError.at(
                "parallel",
                "tensor",
                f": {self._entered or 'the model'} cannot be called when its layers are split: "
                f"{str(error).splitlines()[0]}. {advice}",
            ) from error
        for name, before in self._plain.items():
            after = outputs[name].cpu()
            if pieces is not None and before.shape != after.shape and before.ndim > 2:
                before = pieces(before)
            loose = self._device.type != "cpu" or before.dtype not in TOLERANCES
            allowed = LOOSE if loose else TOLERANCES[before.dtype]
            if before.shape != after.shape or not _is_close(before, after, allowed):
                raise ConfigurationError.at(
                    "parallel",
                    "tensor",
                    f": {name or 'the model'} computes a different result when its layers are split: "
                    f"the code between them needs whole tensors{'' if pieces is None else ' or sequences'}. {advice}",
                )

    def _outputs(self, inputs: Any, cuts: Mapping[str, Cut] | None = None) -> dict[str, Tensor]:
        """The outputs by their parent module's name, in the order in which the calls end."""
        deferred = self._ranks.deferred
        outputs: dict[str, Tensor] = {}
        with ExitStack() as contexts:
            for name in self._parents:
                module = self._model.get_submodule(name)
                contexts.enter_context(module.register_forward_pre_hook(partial(self._enter, name)))
                contexts.enter_context(module.register_forward_hook(partial(self._keep, name, outputs)))
            for context in (evaluating(self._model), torch.no_grad(), torch.random.fork_rng(devices=[])):
                contexts.enter_context(context)
            if deferred is not None:
                contexts.enter_context(deferred.present(self._model, self._ranks, cuts))
            call(self._model, inputs)
        return outputs

    def _enter(self, name: str, *_: Any) -> None:
        self._entered = name or self._entered

    def _keep(self, name: str, outputs: dict[str, Tensor], module: nn.Module, args: Any, output: Any) -> None:
        self._ranks.beat()
        first = next(tensors_in(output), None)
        if first is not None and first.is_floating_point():
            outputs.setdefault(name, first.detach().clone())


def shortened(inputs: Any, size: int) -> Any:
    """The inputs with the first tokens of each sequence, so that a check of a large model takes seconds.

    Lengths that ``size`` ranks can share stay so; others, and whatever does not consist of tokens, are unchanged.
    """
    length = -(-SHORT // size) * size

    def short(tensor: Tensor) -> Tensor:
        is_long = tensor.ndim == 2 and tensor.shape[1] > length and not tensor.shape[1] % size
        return tensor[:, :length] if is_long and not tensor.is_floating_point() else tensor

    return map_tensors(short, inputs)


def _is_close(before: Tensor, after: Tensor, allowed: float) -> bool:
    if isinstance(before, FakeTensor):  # only its shape is known
        return True
    return bool((before - after).abs().max() <= allowed * before.abs().max())


if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


@dataclass(frozen=True)
class Shared:
    """The division of a model among a tensor-parallel group.

    ``cuts``: how parameters are cut, by name; ``partial``: names of the uncut parameters whose gradients have to be
    summed over the group; ``passage``: where sequences pass in pieces, None if nowhere.
    """

    cuts: dict[str, Cut]
    partial: frozenset[str] = frozenset()
    passage: Passage | None = None


@dataclass(frozen=True)
class Splitting:
    """The settings of tensor parallelism.

    ``plan``: as for find_plan; ``sequence``: whether ranks hold pieces of sequences between split layers.
    """

    plan: str | Mapping[str, str] = "auto"
    sequence: bool = False

    def apply(self, model: nn.Module, ranks: "ModelParallel") -> Shared:
        """Replace the planned layers by this rank's parts of them.

        Raises ConfigurationError if no layer can be split, or if the split model computes a different result.
        """
        plan, group, size = find_plan(model, self.plan), ranks.tensor_group, ranks.sizes.tensor
        with Watched(model, find_scattered(model, self.plan, plan) if self.sequence else []) as watched:
            checked = self._checked(model, plan, ranks, watched)
        passage = self._passage(model, watched, checked, size) if self.sequence else None
        cuts = split(model, plan, group, rank=ranks.place_in.tensor, size=size)
        names = passage.partial(model) if passage else set()
        if passage:
            passage.apply(model, group)
        if ranks.deferred is None:
            model.to(ranks.device)
        else:
            ranks.deferred.move(model, ranks.device)
        checked.compare(cuts, partial(own_piece, group=group) if passage else None)
        return Shared(cuts, frozenset(names - {*cuts}), passage)

    def _checked(self, model: nn.Module, plan: Plan, ranks: "ModelParallel", watched: Watched) -> Checked:
        """The complete model's outputs for short sequences; for complete ones if the model can't take others."""
        inputs = ranks.example().inputs
        checked = Checked(model, plan, shortened(inputs, ranks.sizes.tensor), ranks)
        if checked.failure:
            if ranks.deferred is not None:
                ranks.deferred.complete(model, beat=ranks.beat)
                ranks.deferred, ranks.built_whole = None, f"it can't be called without its values ({checked.failure})"
            watched.calls.clear()
            checked = Checked(model, plan, inputs, ranks)
        return checked

    def _passage(self, model: nn.Module, watched: Watched, checked: Checked, size: int) -> Passage:
        if checked.failure:
            raise ConfigurationError.at(
                "parallel.sequence",
                True,
                " needs a forward pass of the whole model, to trace sequences through it, which "
                f"failed: {checked.failure}. Set parallel.sequence=false.",
            )
        if not watched.calls:
            raise ConfigurationError.at(
                "parallel.sequence",
                True,
                f": {type(model).__name__} has no repeated blocks with split layers in them. "
                f"Name modules that take sequences in parallel.plan={{blocks.*: scattered}}, {OFF}",
            )
        return watched.passage(size)
