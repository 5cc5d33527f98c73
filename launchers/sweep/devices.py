"""Assigns GPUs or cores to the jobs of a sweep, so that several can run at the same time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.schema import is_run_config
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.option.declared import declared


class Room:
    """The GPUs that are free. ``shared``: a GPU may be assigned to several jobs."""

    def __init__(self, gpus: list[str], *, shared: bool = False):
        self._all, self._shared = gpus, shared
        self._free = list(gpus)

    def take(self, count: int) -> list[str] | None:
        """Reserve ``count`` GPUs, or as many as exist, and return their ids; None if they are not free now."""
        count = min(count, len(self._all))
        if self._shared:
            self._free.sort(key=self._free.count)
            taken = self._free[:count]
            self._free = self._free[count:] + taken
            return taken
        if count > len(self._free):
            return None
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give_back(self, taken: list[str]) -> None:
        """Free GPUs that ``take`` has reserved."""
        if not self._shared:
            self._free = [gpu for gpu in self._all if gpu in self._free or gpu in taken]


def jobs_at_once(jobs: int | str, configs: list[DictConfig]) -> int:
    """hydra.launcher.jobs with ``auto`` resolved: one job per GPU, or as many as there are cores for their ranks.

    For an engine that finds room for its jobs itself, ``auto`` has no limit.
    """
    most = max(1, len(configs))
    if jobs != "auto":
        return min(int(jobs), most)
    if are_placed(configs):
        return most
    if gpus := len(hardware.gpu_names()):
        return min(gpus, most)
    ranks = max((_ranks(config) for config in configs), default=1)
    return max(1, min(hardware.cpu_cores() // ranks, most))


def are_placed(configs: list[DictConfig]) -> bool:
    """Whether an engine finds machines for all of these jobs, so that none uses this machine's devices."""
    return bool(configs) and all(is_run_config(config) and _first_output(config) is not None for config in configs)


def _first_output(config: DictConfig) -> str | None:
    section: Any = OmegaConf.to_container(config.launcher)
    try:
        return declared("launcher", section).first_output
    except (ConfigurationError, AttributeError):  # freezing the job will say so
        return None


def _ranks(config: DictConfig) -> int:
    if not is_run_config(config):
        return 1
    count = config.launcher.get("nproc_per_node")
    if isinstance(count, int):
        return count
    sections: Any = {group: OmegaConf.to_container(config[group]) for group in ("parallel", "launcher")}
    try:
        return 1 if any(declared(group, section).one_process for group, section in sections.items()) else 2
    except (ConfigurationError, AttributeError):  # freezing the job will say so
        return 2


def shares_of_cores(slots: int) -> list[list[int]]:
    """The cores for each of ``slots``; if there are more slots than cores, they have to share."""
    if not hasattr(os, "sched_getaffinity"):
        return [[] for _ in range(slots)]
    cores = sorted(os.sched_getaffinity(0))
    width = max(1, len(cores) // slots)
    return [[cores[(slot * width + i) % len(cores)] for i in range(width)] for slot in range(slots)]


@contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
    """A context in which this process and those that it starts run on these cores; unchanged if none are named."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
