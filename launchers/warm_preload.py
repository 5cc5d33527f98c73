"""Imports of the warm process. See manyheads.launchers.warm_server."""

import gc
import importlib
import os
from contextlib import suppress
from pathlib import Path

import setproctitle

from manyheads.launchers.warm_settings import WAITS_FOR, awaited
from manyheads.runner.machine.process import die_with_parent

# Ranks inherit the pipe by which the server would notice the parent's end, so that the pipe alone does not suffice;
# the kernel's parent-death signal does.
die_with_parent()
# Called before the environment changes: setproctitle finds its memory once, beside the original environment.
setproctitle.setproctitle("manyheads: server that ranks are forked from")

gc.disable()  # a collection takes a quarter of the time and frees nothing
if place := os.environ.pop(WAITS_FOR, None):
    # A fifth of what ranks import depends neither on torch nor on the variables that the parent still works out.
    for name in ("sympy", "triton", "torchgen.model", "asyncio", "unittest.mock", "pynvml", "rich.progress"):
        with suppress(ImportError):  # some builds of torch come without it
            importlib.import_module(name)
    variables = awaited(Path(place))
    os.environ.clear()
    os.environ.update(variables)
# With it, checks for a GPU during imports ask the driver alone: a process that has initialized CUDA can't fork ranks
# that use it. Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#environment-variables.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
of_the_run = os.environ.pop("MANYHEADS_IMPORTS", "").split()
before = dict(os.environ)
for name in ("manyheads.runner.loop.rank_main", "manyheads.runner.loop.session"):
    importlib.import_module(name)
for name in of_the_run:
    with suppress(Exception):  # ranks fail in the same way, and report it
        importlib.import_module(name)
# Imported by DistributedDataParallel and some optimizers at first use: two seconds in every rank. Older versions of
# torch lack some of it.
for name in ("torch._inductor.config", "torch.utils.serialization"):
    with suppress(ModuleNotFoundError):
        importlib.import_module(name)

gc.freeze()  # ranks' collectors neither scan these shared objects nor, by marking them, copy their memory
gc.enable()
SET_BY_IMPORTS = {name: value for name, value in os.environ.items() if before.get(name) != value}
