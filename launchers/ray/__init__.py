"""launcher=ray: ranks on a Ray cluster.

Ray reserves either all bundles of a placement group or none, counts devices, and reports lost machines. Each bundle
runs this project's own agent, which starts and watches its ranks as on any other machine, so a run on Ray has the same
results, errors and restarts as one under torchrun.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any, ClassVar

from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.node_settings import KEYS, NodeSettings
from manyheads.launchers.torchrun import order
from manyheads.runner.option.rules import AUTO, PLACE, choice, either, number, whole
from manyheads.runner.option.tree import Section


class Ray(Launcher):
    """Runs on a Ray cluster, whose bundles are treated like several machines."""

    def __init__(
        self, *, placement: str, cpus_per_rank: float, address: str, placement_timeout: float | None, **options: Any
    ):
        section = {**options, **{key: options.pop(key) for key in KEYS if key in options}}
        super().__init__(**options)
        settings = NodeSettings.of(section)
        assert settings is not None
        names = [f"bundle-{number}" for number in range(settings.most)]
        self.settings = replace(settings, hosts=names)
        self.machines = dict.fromkeys(names, self.ranks)
        self._asked = {"strategy": placement, "address": address, "cpus": cpus_per_rank * self.ranks}
        self._patience = placement_timeout
        self._per_bundle, self.ranks = self.ranks, self.ranks * settings.most

    def launch_on_machines(self, job: Job, run: Callable[..., None]) -> None:
        from manyheads.launchers.ray.nodes import placed

        gpus = self._per_bundle if job.run is not None and job.run.on_gpus else 0
        asked = {**self._asked, "gpus": gpus, "bundles": len(self.machines)}
        gather = partial(placed, asked=asked, patience=self._patience)
        run(self.settings, job, order, stall_timeout=self.stall_timeout, gather=gather)


OLDEST = (2, 40)
INSTALL = "pip install 'manyheads[ray]', the same version as the cluster's"


class RayOption(LauncherOption):
    """Declares ranks on the machines of a Ray cluster."""

    rules: ClassVar = {
        "nodes": whole(1),
        "placement": choice("STRICT_SPREAD", "PACK", "SPREAD", "STRICT_PACK"),
        "cpus_per_rank": either(AUTO, number(at_least=0)),
        "address": PLACE,
        "placement_timeout": number(above=0),
    }
    without_effect: ClassVar[tuple[str, ...]] = ("placement", "cpus_per_rank", "address", "placement_timeout")
    finds_machines = True
    first_output: ClassVar[str | None] = "node_0.log"

    def unavailable(self) -> str | None:
        try:
            version = metadata.version("ray")
        except metadata.PackageNotFoundError:
            return f"Ray is not installed: {INSTALL}"
        release = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if not OLDEST <= release < (3,):
            return f"Ray {version} is installed, but 2.40 or a later 2.x is needed: {INSTALL}"
        return None

    def note(self) -> str:
        return "the cluster is looked for when a run starts"

    def resolved_keys(self) -> Section:
        cpus = self.section["cpus_per_rank"]
        return {**super().resolved_keys(), "cpus_per_rank": self.threads_per_rank if cpus == "auto" else cpus}

    def gpus_here(self, count: int) -> int:
        return 0  # the run gets its GPUs from Ray, on any machine
