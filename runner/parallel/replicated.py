"""Declarations of parallel=replicated: who may start it, and what it does not work with."""

from importlib import metadata
from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import BOOLEAN, KeyKind, choice, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.mesh_refusals import Mesh, OnMeshOption
from manyheads.runner.parallel.parallel_option import ParallelOption

VERSION = "0.2.0"  # torchft's programming interface changes with each version
WAITS = 3  # timeouts in a row without a sign of life: the quorum, the connections to its members, their state
INSTALL = "pip install 'manyheads[replicated]'"
TRUST = (
    "torchft's services have no authentication: anyone who can reach their ports can stop the replicas or join the "
    "training. On one machine, all but one per replica listen only on the loopback interface. If the network is "
    "isolated, or you trust everybody on it, set parallel.trusted_network=true. Use parallel=ddp otherwise"
)


def missing() -> str | None:
    """Why torchft cannot be used here, and how to get it; None if it can."""
    try:
        version = metadata.version("torchft")
    except metadata.PackageNotFoundError:
        return f"torchft is not installed: {INSTALL}"
    return None if version == VERSION else f"torchft {version} is installed, but {VERSION} is needed: {INSTALL}"


class ReplicatedOption(OnMeshOption):
    """Replicas that may die and rejoin while the others keep training."""

    rules: ClassVar = {
        "trusted_network": BOOLEAN.of_kind(KeyKind.PLACE),
        "ranks_per_replica": whole(1),
        "inside": choice("ddp", "fsdp"),
    }
    color = "#581466"
    outlives_ranks = True
    trusted_network: bool
    ranks_per_replica: int
    inside: str = "ddp"
    timeout: float

    @property
    def mixes_communication(self) -> bool:  # type: ignore[override]
        return self.inside == "fsdp"

    def unavailable(self) -> str | None:
        return missing() or (None if self.trusted_network else TRUST)

    def note(self) -> str:
        return "replicas that may die and rejoin, over gloo"

    def data_shares(self, *, ranks: int) -> int:
        return 1  # each update divides its batch among its members

    def exchanges(self, *, devices: int) -> Exchanges:
        raise self.unpredictable("its replicas come and go, and their exchange by torchft is not modelled")

    def stand_in(self) -> ParallelOption:
        target = "manyheads.runner.parallel.rank.replicated.stand_in"
        shards = self.ranks_per_replica if self.mixes_communication else 1
        return ParallelOption({"_target_": target, "name": "replicated", "timeout": self.timeout, "shards": shards})

    def resolved(self, run: RunConfig) -> RunConfig:
        return run if run.checkpoint.format == "sharded" else run.changed(checkpoint={"format": "single"})

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if not run.launcher.restarts_ranks:
            raise ConfigurationError.at(
                "launcher",
                run.launcher.name,
                " stops all ranks when one dies, which parallel=replicated is meant to prevent. Set launcher=torchft.",
            )
        self._check_hang_timeout(run.launcher.section["hang_timeout"])
        self._check_ranks(run)
        if run.precision.half_weights(on_gpus=run.on_gpus) or run.precision.reloads_optimizer():
            raise ConfigurationError.at(
                "precision",
                run.precision.name,
                " unscales gradients before replicas exchange them. Set precision=bf16 or amp.",
            )
        if run.trainer.sam_rho is not None:
            raise ConfigurationError(
                "trainer.sam_rho: its second pass would be a second exchange within an update, which "
                "parallel=replicated cannot repeat on its own. Set it to null.",
                key="trainer.sam_rho",
            )
        if run.checkpoint.format == "sharded":
            raise ConfigurationError.at(
                "checkpoint.format",
                "sharded",
                ": each replica has the whole model, and one of them writes. Set it to single.",
            )

    def _check_ranks(self, run: RunConfig) -> None:
        """Refuse a replica that spans machines, and sharding over a single rank."""
        size, count = self.ranks_per_replica, run.launcher.nproc_per_node
        if count % size:
            nearest = f"{count // size * size} or {(count // size + 1) * size}" if count > size else str(size)
            raise ConfigurationError.at(
                "parallel.ranks_per_replica",
                size,
                f": launcher.nproc_per_node={count} ranks on each machine are not a "
                f"multiple of it, and a replica's ranks must be on one machine. Set launcher.nproc_per_node={nearest}.",
            )
        if self.mixes_communication:
            if size == 1:
                raise ConfigurationError.at(
                    "parallel.inside",
                    "fsdp",
                    " shards the model over the ranks of a replica, but "
                    "parallel.ranks_per_replica=1. Set it to at least 2, or parallel.inside=ddp.",
                )
            self.refuse_mesh(run, Mesh(Layout(shard=size)), what="parallel.inside=fsdp")

    def _check_hang_timeout(self, hang: float) -> None:
        """Refuse a timeout after which a replica that waits for a hanging one would count as hanging itself."""
        timeout = self.timeout
        if hang < WAITS * timeout:
            raise ConfigurationError.at(
                "launcher.hang_timeout",
                hang,
                f" is too short: with parallel.timeout={timeout:g}, a replica may wait "
                f"for another one for up to {WAITS * timeout:g} seconds. Set it to at least that, or parallel.timeout "
                "lower.",
            )


LIGHTHOUSE = "MANYHEADS_LIGHTHOUSE"  # its address
PLACE = "MANYHEADS_REPLICAS"  # the folder of states for replicas that rejoin
HOST = "MANYHEADS_REPLICA_HOST"  # this machine's address, if there are several machines
