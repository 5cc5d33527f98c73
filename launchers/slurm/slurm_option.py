"""Declarations of launcher=slurm: its keys, and the devices of the nodes that it requests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from manyheads.launchers.launcher_option import LauncherOption, Standing
from manyheads.launchers.slurm import slurm_commands
from manyheads.launchers.slurm.allocation import Allocation, is_on_node
from manyheads.launchers.slurm.following import standing
from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.option.rules import AUTO, DURATION, PLACE, KeyKind, either, list_of, text, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder

WORD = text("a word without spaces", r"[^\s\"'\\]+").of_kind(KeyKind.PLACE)
CPUS_FOR_GPU = 8


class SlurmOption(LauncherOption):
    """Declares that nodes of a cluster are requested; this machine need not be one of them."""

    rules: ClassVar = {
        "nodes": either(whole(1), AUTO),
        "gpus_per_node": whole(0),
        "cpus_per_node": either(whole(1), AUTO),
        **dict.fromkeys(("partition", "account", "qos", "constraint"), WORD),
        "time_limit": DURATION.of_kind(KeyKind.PLACE),
        "stop_before": whole(1),
        "lines": list_of(PLACE),
        "template": PLACE,
        "srun": PLACE,
    }
    without_effect: ClassVar[tuple[str, ...]] = (
        *("partition", "account", "qos", "constraint", "cpus_per_node", "time_limit", "stop_before", "requeue"),
        "follow",
    )
    derived: ClassVar[tuple[str, ...]] = ("nodes", "cpus_per_node")
    leaves = ("slurm.sh", "slurm.json")
    finds_machines = True
    first_output: ClassVar[str | None] = "slurm.log"
    gpus_per_node: int
    template: str | None

    def unavailable(self) -> str | None:
        return slurm_commands.missing()

    def note(self) -> str:
        return slurm_commands.version()

    @contextmanager
    def on_its_machines(self, run: RunConfig) -> Iterator[RunConfig]:
        section, allocation = self.section, Allocation.here()
        nodes, cpus = section["nodes"], section["cpus_per_node"]
        template = self.template and os.path.abspath(os.path.expanduser(self.template))
        if nodes == "auto":
            nodes = allocation.count if allocation else 1
        if allocation is not None and nodes > allocation.count:
            raise ConfigurationError.at(
                "launcher.nodes",
                nodes,
                f": this is Slurm job {allocation.job}, which has "
                f"{allocation.count}. Set it to auto, or type the command outside of a job to submit one.",
            )
        if allocation is not None and is_on_node():
            cpus = hardware.cpu_cores() if cpus == "auto" else cpus
            yield run.changed(launcher={"nodes": nodes, "cpus_per_node": cpus, "template": template})
            return
        offered, gpus = (None, 0) if allocation is None else allocation.offered()
        gpus = self.gpus_per_node or gpus
        alone = run.parallel.one_process
        ranks = section["nproc_per_node"] if section["nproc_per_node"] != "auto" else 1 if alone else gpus or 2
        if cpus == "auto":
            threads = run.launcher.threads_per_rank
            cpus = offered or (ranks * threads if isinstance(threads, int) else max(ranks, CPUS_FOR_GPU * gpus))
        with hardware.elsewhere(gpus=gpus, cores=cpus):
            yield run.changed(launcher={"nodes": nodes, "cpus_per_node": cpus, "template": template})

    def gpus_here(self, count: int) -> int:
        return count if Allocation.here() is not None and is_on_node() else 0

    def standing(self, folder: RunFolder, answers: dict[str, Any]) -> Standing | None:
        return standing(folder, answers)

    def check_run(self, run: RunConfig) -> None:
        if run.on_gpus and hardware.torch_cuda_version() is None and hardware.torch_build("hip") is None:
            raise Unavailable(
                "launcher.gpus_per_node: the installed torch is a CPU build. Set trainer.device=cpu.",
                key="launcher.gpus_per_node",
            )
