"""Gradients that not everything can compute with: those of complex weights, and sparse ones.

An optimizer is tried on a small weight before the run, since torch finds such mistakes only in the first update.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.parallel import GradientKind
from manyheads.runner.parallel.rank.structure import own_settings, stepped

WORDS: dict[GradientKind, str] = {"complex": "which is complex", "sparse": "whose gradients are sparse"}


def unusual_gradients(model: nn.Module) -> dict[GradientKind, str]:
    """For each unusual kind of gradients that the model has, the name of the first trained parameter with it."""
    examples: dict[GradientKind, str] = {}
    for path, module in model.named_modules():
        is_sparse = isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse
        for name, parameter in module.named_parameters(path, recurse=False):
            if parameter.requires_grad and parameter.is_complex():
                examples.setdefault("complex", name)
            if parameter.requires_grad and is_sparse:
                examples.setdefault("sparse", name)
    return examples


def refuse_unusual(unusual: Mapping[GradientKind, str], optimizer: Optimizer, target: str) -> None:
    """Try the optimizer on the model's kinds of gradients. Raises ConfigurationError if it can't step with one."""
    settings = own_settings(optimizer)
    has_dense = sum(len(group["params"]) for group in optimizer.param_groups) > 1
    for kind, name in unusual.items():
        reason = _failure(optimizer, settings, kind, has_dense=has_dense)
        if reason is None:
            continue
        undecayed = {**settings, "weight_decay": 0.0}
        if settings.get("weight_decay") and _failure(optimizer, undecayed, kind, has_dense=has_dense) is None:
            remedy = "Set optimizer.weight_decay=0."
        else:
            remedy = "Set optimizer=sgd with optimizer.weight_decay=0." if kind == "sparse" else "Set optimizer=adamw."
        raise ConfigurationError.at(
            "optimizer._target_", target, f" can't update {name}, {WORDS[kind]}: {reason}. {remedy}"
        )


def _failure(optimizer: Optimizer, settings: dict[str, Any], kind: GradientKind, *, has_dense: bool) -> str | None:
    """Why two steps with such gradients fail; None if they don't."""
    with unset_fake_temporarily():  # the model's weights may be fake; these need values
        try:
            if kind == "sparse":
                indices, values = torch.tensor([[1]]), torch.ones(1, 2)
                sparse = torch.sparse_coo_tensor(indices, values, (3, 2), check_invariants=True)
                gradients = [sparse, *([torch.ones(3, 2)] if has_dense else [])]
                stepped(type(optimizer), settings, [torch.ones(3, 2) for _ in gradients], [gradients] * 2)
                return None
            weight = torch.complex(torch.linspace(-1, 2, 9), torch.linspace(1, 3, 9)).view(3, 3)
            gradient = weight.sin()
            (complex_,) = stepped(type(optimizer), settings, [weight], [[gradient]] * 2)
            (real,) = stepped(type(optimizer), settings, [as_real(weight)], [[as_real(gradient)]] * 2)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            return str(error).splitlines()[0].rstrip(".")
    is_same = torch.allclose(as_real(complex_), real, rtol=1e-4, atol=1e-6)
    return None if is_same else "it does not treat complex numbers as pairs of real ones"
