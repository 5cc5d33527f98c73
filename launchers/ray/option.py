"""What launcher=ray declares."""

from importlib import metadata
from typing import ClassVar

from manyheads.launchers.option import LauncherOption
from manyheads.runner.option.rules import AUTO, TEXT, choice, either, number, whole
from manyheads.runner.option.run_config import RunConfig

OLDEST = (2, 40)
INSTALL = "pip install 'manyheads[ray]', the same version as the cluster's"


class RayOption(LauncherOption):
    """Declares ranks on the machines of a Ray cluster."""

    rules: ClassVar = {
        "nodes": whole(1),
        "placement": choice("STRICT_SPREAD", "PACK", "SPREAD", "STRICT_PACK"),
        "cpus_per_rank": either(AUTO, number(at_least=0)),
        "address": TEXT,
        "placement_timeout": number(above=0),
    }
    without_effect: ClassVar[tuple[str, ...]] = ("placement", "cpus_per_rank", "address", "placement_timeout")
    steering: ClassVar[tuple[str, ...]] = ("address",)
    finds_machines = True
    first_output: ClassVar[str | None] = "node_0.log"

    def unavailable(self) -> str | None:
        try:
            version = metadata.version("ray")
        except metadata.PackageNotFoundError:
            return f"Ray is not installed: {INSTALL}"
        found = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if not OLDEST <= found < (3,):
            return f"Ray {version} is installed, but 2.40 or a later 2.x is needed: {INSTALL}"
        return None

    def note(self) -> str:
        return "the cluster is looked for when a run starts"

    def resolved(self, run: RunConfig) -> RunConfig:
        run = super().resolved(run)
        is_given = self.section["cpus_per_rank"] != "auto"
        return run if is_given else run.changed(launcher={"cpus_per_rank": run.launcher.threads_per_rank})

    def gpus_here(self, count: int) -> int:
        return 0  # those that Ray gives it, wherever they are
