"""The state of the process's own random generators."""

import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch

from manyheads.runner.run.checkpoint_places import StateDict

GENERATORS = ("torch", "random", "numpy")  # what a sample may draw from


def seed_sample(key: int, generators: Collection[str] = GENERATORS) -> None:
    """Seed the generators that a sample draws from; ``generators``: of "torch", "random" and "numpy"."""
    if "torch" in generators:
        torch.default_generator.manual_seed(key)  # a hundred times quicker than torch.manual_seed
    if "random" in generators:
        random.seed(key)
    if "numpy" in generators:
        np.random.seed(key & 0xFFFFFFFF)


@contextmanager
def restored(generators: Collection[str]) -> Iterator[None]:
    """A context that leaves these generators of the process unchanged; with "torch" also those of the current GPU."""
    with ExitStack() as stack:
        if "torch" in generators:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                stack.callback(torch.cuda.set_rng_state, torch.cuda.get_rng_state())
        if "random" in generators:
            stack.callback(random.setstate, random.getstate())
        if "numpy" in generators:
            stack.callback(np.random.set_state, np.random.get_state())
        yield


def seed_everything(seed: int) -> None:
    """Seed this process's generators: torch's, also of GPUs, Python's and NumPy's."""
    torch.manual_seed(seed)  # CUDA generators too
    random.seed(seed)
    np.random.seed(seed % 2**32)


def get_state() -> StateDict:
    """The generators' state in values that ``torch.load(weights_only=True)`` accepts."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: StateDict = {
        "torch": torch.get_rng_state(),
        "random": [version, torch.tensor(internal, dtype=torch.int64), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_state(state: StateDict) -> None:
    """Restore this process's generators to what ``get_state`` returned."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["random"]
    random.setstate((version, tuple(internal.tolist()), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
