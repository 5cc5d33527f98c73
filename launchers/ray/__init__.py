"""launcher=ray: ranks on a Ray cluster.

Ray reserves all bundles of a gang at once or none, counts devices, and reports lost machines. Each bundle runs this
project's own agent, which starts and watches its ranks as on any other machine, so a run on Ray has the numbers, errors
and restarts of one under torchrun.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from manyheads.launchers.base import Job, Launcher
from manyheads.launchers.nodes.run import run_on_nodes
from manyheads.launchers.nodes.settings import KEYS, Settings
from manyheads.launchers.ray.gathering import placed
from manyheads.launchers.torchrun import order


class Ray(Launcher):
    """Runs on a Ray cluster, whose bundles are treated like several machines."""

    def __init__(
        self, *, placement: str, cpus_per_rank: float, address: str, placement_timeout: float | None, **options: Any
    ):
        section = {**options, **{key: options.pop(key) for key in KEYS if key in options}}
        super().__init__(**options)
        settings = Settings.of(section)
        assert settings is not None
        names = [f"bundle-{number}" for number in range(settings.most)]
        self.settings = replace(settings, hosts=names)
        self.machines = dict.fromkeys(names, self.ranks)
        self._asked = {"strategy": placement, "address": address, "cpus": cpus_per_rank * self.ranks}
        self._patience = placement_timeout
        self._per_bundle, self.ranks = self.ranks, self.ranks * settings.most

    def launch(self, job: Job) -> None:
        gpus = self._per_bundle if job.run is not None and job.run.on_gpus else 0
        asked = {**self._asked, "gpus": gpus, "bundles": len(self.machines)}
        gather = partial(placed, asked=asked, patience=self._patience)
        assert self.settings is not None
        run_on_nodes(self.settings, job, order, stall_timeout=self.stall_timeout, gather=gather)
