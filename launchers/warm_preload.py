"""Imports of the warm process. See manyheads.launchers.warm_server."""

import gc
import importlib
import os
from contextlib import suppress

import setproctitle

from manyheads.runner.machine.process import die_with_parent

# Its ranks inherit the pipe by which the server would notice the parent's end, so that the pipe alone is not
# enough; the kernel's parent-death signal is.
die_with_parent()
# It looks for its place in memory once, beside the environment as the process was given it.
setproctitle.setproctitle("manyheads: server that ranks are forked from")

# Whatever asks meanwhile whether there is a GPU asks the driver alone: a process that has begun to use CUDA can't fork
# ranks that do. Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#environment-variables.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
of_the_run = os.environ.pop("MANYHEADS_IMPORTS", "").split()
before = dict(os.environ)
gc.disable()  # it takes a quarter of the time, and finds nothing: what is imported stays
for name in ("manyheads.runner.loop.rank_main", "manyheads.runner.loop.session"):
    importlib.import_module(name)
for name in of_the_run:
    with suppress(Exception):  # which the ranks find too, and report
        importlib.import_module(name)
# What DistributedDataParallel and some optimizers import when they are first used: two seconds in every rank. Older
# versions of torch do not have all of it.
for name in ("torch._inductor.config", "torch.utils.serialization"):
    with suppress(ModuleNotFoundError):
        importlib.import_module(name)

gc.freeze()  # ranks neither search what they share nor, by leaving marks in it, copy it
gc.enable()
SET_BY_IMPORTS = {name: value for name, value in os.environ.items() if before.get(name) != value}
