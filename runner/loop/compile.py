"""trainer.compile: torch.compile in place, so that the weights keep their names.

Source: https://docs.pytorch.org/docs/stable/generated/torch.compile.html.
"""

import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from manyheads.runner.option.trainer_section import CUDA_GRAPHS
from manyheads.runner.parallel.rank.structure import map_tensors
from manyheads.runner.parallel.rank.units import listed_units


def compile_units(model: nn.Module, mode: str, patterns: Sequence[str]) -> None:
    """Compile modules separately: identical ones only once, which takes a fraction of the time.

    ``patterns``: as for ``listed_units``. Source: https://docs.pytorch.org/tutorials/recipes/regional_compilation.html.
    Raises ConfigurationError.
    """
    print_no_tables(mode)
    for unit in listed_units(model, patterns, key="trainer.compile_units").values():
        unit.compile(mode=mode)


def compile_in_place(model: nn.Module, mode: str, device: torch.device) -> None:
    """Compile the user's own ``model``, in whatever wrapper, so that training and evaluation run the same code.

    torch still splits the backward pass at DistributedDataParallel's buckets, whose exchange overlaps with it: it looks
    for the wrapper when it compiles, in the first pass. ``mode``: none, or one of torch.compile's.

    CUDA graphs overwrite the outputs of the previous pass, but metrics and callbacks keep outputs for longer. So these
    modes return copies, of which the largest are logits.
    """
    if mode == "none":
        return
    print_no_tables(mode)
    model.compile(mode=mode)
    if device.type == "cuda" and mode in CUDA_GRAPHS:
        replayed: Any = model._compiled_call_impl

        def called(*arguments: Any, **keywords: Any) -> Any:
            return map_tensors(torch.clone, replayed(*arguments, **keywords))

        model._compiled_call_impl = called


def print_no_tables(mode: str) -> None:
    """Keep the tables of kernels that autotuning tried from the terminal, unless torch's own variables ask for them."""
    if not mode.startswith("max-autotune"):
        return
    from torch._inductor import config  # seconds

    quiet = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
    for key, value in quiet.items():
        if hasattr(config, key) and f"TORCHINDUCTOR_{key.upper()}" not in os.environ:
            setattr(config, key, value)
    # torch 2.11's autotuning calls what torch deprecates.
    warnings.filterwarnings("ignore", "TypedStorage is deprecated", UserWarning, r"torch\._inductor\.select_algorithm")


def is_compiled(model: nn.Module) -> bool:
    """Whether a call of the module runs compiled code, at least in parts."""
    return any(module._compiled_call_impl is not None for module in model.modules())


def let_batches_differ(inputs: Any) -> None:
    """Let a compiled model take any batch size without recompiling: the last batch of an evaluation is smaller."""
    map_tensors(lambda tensor: torch._dynamo.maybe_mark_dynamic(tensor, 0), inputs)
