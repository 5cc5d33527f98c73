"""Converts checkpoints to other formats one tensor at a time, so that memory for the largest tensor is enough."""

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.dtypes import NAMES
from manyheads.runner.checkpoint.rank.extra_state import packed, unpacked
from manyheads.runner.checkpoint.rank.fit import is_named
from manyheads.runner.checkpoint.rank.lazy import replaced, tensors
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.checkpoint.sharded.index import Box
from manyheads.runner.checkpoint.sharded.rank.read_sharded import Stored
from manyheads.runner.checkpoint.sharded.rank.shard_files import Chosen, write_file
from manyheads.runner.checkpoint.sharded.rank.write_sharded import Save, written_by_all
from manyheads.runner.checkpoint.sharded.safetensors_file import TensorKind
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.files import remove, take_name, whole_file
from manyheads.runner.run.folder import aside, refusal

SUFFIXES = {"single": ".pt", "sharded": ".sharded", "safetensors": ".safetensors", "torch": ".weights.pt"}
ALIGNED = 64  # bytes


class OneRank:
    """The group of ranks of a process that converts alone."""

    rank, world_size, records, shares_model = 0, 1, True, False

    def gather(self, value: Any) -> list[Any]:
        return [value]


def convert(source: Path, to: str, out: Path | None = None) -> Path:
    """Write the checkpoint ``source`` in the format ``to``; returns the new path.

    "single" and "sharded" keep everything, "safetensors" and "torch" only the weights by name. Raises
    ConfigurationError if the target already exists, and OSError.
    """
    path = out or source.with_name(f"{source.name.removesuffix('.pt')}{SUFFIXES[to]}")
    source, path = source.parent.resolve() / source.name, path.parent.resolve() / path.name
    if source.is_symlink():  # in somebody else's folder it could point to any checkpoint
        raise refusal(source)
    if os.path.lexists(path):
        raise ConfigurationError(
            f"{path} already exists and is not overwritten. Name another file with --out.", key="--out", value=path
        )
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"{path.parent} is not a folder. Create it, or name another one with --out.", key="--out", value=path
        )
    state = load(source, is_mapped=True)
    weights = state.get("model", state)
    has_names = not isinstance(weights, dict) or all(isinstance(name, str) for name in weights)
    if not has_names or (to in ("safetensors", "torch") and not is_named(weights)):
        raise ConfigurationError(f"the checkpoint {source} holds no named weights.")
    if isinstance(weights, dict):
        weights = (packed if to in ("sharded", "safetensors") else unpacked)(weights)
        state = {**state, "model": weights} if "model" in state else weights
    if to in ("sharded", "safetensors"):
        _refuse_other_tensors(state if to == "sharded" else weights, to)
    if to == "sharded":
        _write_folder(path, state)
    elif to == "safetensors":
        _write_safetensors(path, weights)
    else:
        with _mapped(state if to == "single" else weights, path.parent) as content, whole_file(path) as file:
            torch.save(_with_lists(content) if to == "single" else content, file)
    return path


def _refuse_other_tensors(state: Any, to: str) -> None:
    """Raises ConfigurationError for tensors that have no values, or are not dense."""
    for name, leaf in tensors(state):
        if isinstance(leaf, Tensor) and (leaf.is_meta or leaf.layout is not torch.strided):
            what = "on the meta device, so it has no values" if leaf.is_meta else f"a tensor of layout {leaf.layout}"
            message = f"{name} is {what}, which --to {to} does not support. Set --to single or torch."
            raise ConfigurationError(message, key="--to", value=to, allowed=("single", "torch"))


def _write_folder(path: Path, state: StateDict) -> None:
    if not isinstance(state.get("model"), dict):
        state = {"model": state}
    progress = state.get("progress")
    step = progress.get("step", 0) if isinstance(progress, dict) else 0
    save = Save(path, state, OneRank(), step=step)
    save.finish(written_by_all(save, OneRank()), best=None)


def _write_safetensors(path: Path, weights: StateDict) -> None:
    chosen = []
    for name, tensor in weights.items():
        if tensor.dtype not in NAMES:
            message = f"{name} is {tensor.dtype}, which safetensors does not support. Set --to torch."
            raise ConfigurationError(message, key="--to", value="safetensors")
        kind = TensorKind(NAMES[tensor.dtype], tuple(tensor.shape))
        chosen.append(Chosen(name, kind, Box.whole(kind.shape), tensor))
    beside = path.with_name(aside(path.name))
    try:
        write_file(beside, chosen, {"format": "pt"})
        take_name(beside, path)
    finally:
        remove(beside)


@contextmanager
def _mapped(state: Any, folder: Path) -> Iterator[Any]:
    """The state with its stored tensors in an unnamed, memory-mapped file, whose pages the system may drop."""
    sizes = [-(-tensor.nbytes // ALIGNED) * ALIGNED for _, tensor in tensors(state) if isinstance(tensor, Stored)]
    begins = accumulate(sizes, initial=0)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(max(1, sum(sizes)))
        memory = mmap.mmap(file.fileno(), max(1, sum(sizes)))  # goes with the tensors in it

        def placed(stored: Stored) -> Tensor:
            begin, count = next(begins), stored.shape.numel()
            if not count:
                return stored.read()
            tensor = torch.frombuffer(memory, dtype=stored.dtype, count=count, offset=begin).view(stored.shape)
            stored.read_into(tensor, Box.whole(stored.shape))
            return tensor

        yield replaced(state, Stored, placed)


def _with_lists(state: StateDict) -> StateDict:
    """The state with the ranks' own parts in lists, as in single files."""
    by_name = {name: state[name] for name in ("rng", "parallel") if isinstance(state.get(name), dict)}
    return {**state, **{name: [part for _, part in sorted(by_rank.items())] for name, by_rank in by_name.items()}}
