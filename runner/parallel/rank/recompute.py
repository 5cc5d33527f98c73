"""Modules that keep only some of their activations for the backward pass, and compute the rest again."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from manyheads.runner.errors import ConfigurationError

MATRIX_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
ATTENTION = "aten._scaled_dot_product_"  # the beginning of its kernels' names, which are as many as devices need
# Hooks on saved tensors, by which memory is counted, see the selected ones only where torch has this argument.
HOOKED = (
    {"respect_saved_tensors_hooks": True} if "respect_saved_tensors_hooks" in signature(checkpoint).parameters else {}
)


def recompute(units: Mapping[str, nn.Module], setting: object, *, key: str) -> None:
    """Let modules keep only their inputs, and recompute the rest. Raises ConfigurationError, which names the ``key``.

    ``setting``: the key's value; with "selective" they also keep what a ``Selection`` does. Random numbers, as of
    dropout, are the same in both passes.
    """
    is_selective = setting == "selective"
    for name, unit in units.items():
        if any(isinstance(module, _BatchNorm) for module in unit.modules()):
            raise ConfigurationError(
                f"{key}: {name} has BatchNorm, whose running statistics would count each batch twice. Leave it out, "
                "or name modules without it.",
                key=key,
            )
        unit.forward = Recomputed(
            unit.forward, {"context_fn": partial(selected, key), **HOOKED} if is_selective else {}
        )


class Recomputed:
    """A module's ``forward`` that keeps only its inputs. An object, which copies of the module copy too.

    ``options``: of torch's ``checkpoint``.
    """

    def __init__(self, forward: Callable[..., Any], options: Mapping[str, Any]):
        self.forward, self.options = forward, options

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return checkpoint(self.forward, *inputs, use_reentrant=False, **self.options, **named)


def selected(key: str) -> tuple[AbstractContextManager, AbstractContextManager]:
    """The contexts of a forward pass that keeps a selection, and of its recomputation. ``key``: for errors."""
    forward, again = create_selective_checkpoint_contexts(Selection())
    return forward, again if torch.compiler.is_compiling() else _explained(again, key)


@contextmanager
def _explained(context: AbstractContextManager, key: str) -> Iterator[None]:
    try:
        with context:
            yield
    except RuntimeError as error:
        if "has been mutated" not in str(error):
            raise
        raise ConfigurationError.at(
            key,
            "selective",
            ": the model changes in place what would be kept, as nn.ReLU(inplace=True) after nn.Linear does. Set it to "
            "[auto] or true, which keep nothing, or compute without inplace.",
        ) from error


class Selection:
    """Keeps the outputs of attention and of every second matrix product. Called for each operation of a forward pass.

    Source: torchtitan's torchtitan/distributed/activation_checkpoint.py. Attention that draws a dropout mask is
    recomputed: if it were left out, whatever draws random numbers after it would draw others than before.
    """

    def __init__(self) -> None:
        self._products = {False: 0, True: 0}  # by whether they are recomputed

    def __call__(self, context: SelectiveCheckpointContext, operation: Any, *args: Any, **_: Any) -> CheckpointPolicy:
        if operation in MATRIX_PRODUCTS:
            self._products[context.is_recompute] += 1
            keeps = self._products[context.is_recompute] % 2 == 1
        else:
            draws = any(isinstance(given, float) and given > 0 for given in args)  # dropout_p is the only such argument
            keeps = str(operation).startswith(ATTENTION) and not draws
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE
