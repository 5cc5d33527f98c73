"""What is hurt: a small command of each kind, and where it runs."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import needs
from tests.chaos.place import Place

# 60 updates in three epochs, a row every 4, checkpoints between them.
SMALL = (
    *("data=synthetic", "data.image_size=8", "data.num_classes=3", "data.train_samples=480", "data.val_samples=50"),
    *("data.batch_size=24", "model.width=4", "optimizer.lr=0.05", "trainer.epochs=3", "trainer.log_every=4"),
    *("trainer.device=cpu", "checkpoint.every=7", "launcher.threads_per_rank=1", "callbacks=predictions"),
)
TWO = ("parallel=ddp", "launcher.nproc_per_node=2")
NEEDED = {"machines": ["create network namespaces"], "slurm": ["slurm"], "ray": ["ray"]}
NODES = ("launcher=torchrun", "launcher.nproc_per_node=1", "launcher.node_timeout=8", "parallel=ddp")
SEARCH = (
    *("-m", "hydra/sweeper=search", "hydra.sweeper.sampler.seed=3", "hydra/sweeper/pruner=median"),
    *("hydra.sweeper.n_trials=12", "hydra.sweeper.pruner.n_startup_trials=3", "optimizer.lr=interval(0.0001,0.5)"),
)


@dataclass(frozen=True)
class Kind:
    """A command. ``overrides``: what is typed besides SMALL; ``where``: what it needs to run on.

    ``is_exact``: whether it ends in the same bits; ``is_many``: a sweep or a search.
    """

    name: str
    overrides: tuple[str, ...]
    where: str = "here"
    is_exact: bool = True
    is_many: bool = False

    def missing(self) -> str | None:
        """Why it cannot run here; None if it can."""
        words = re.findall(r"\w+", " ".join(self.overrides))
        needed = [word if word in needs.PROGRAMS else needs.NAMED.get(word) for word in words]
        names = [*filter(None, needed), *NEEDED.get(self.where, ())]
        return next((why for name in names if (why := needs.missing(name))), None)

    def words(self, folder: Path, place: Place) -> list[str]:
        """The words of the command that starts it in ``folder``."""
        typed = {each.partition("=")[0] for each in self.overrides}
        small = [each for each in SMALL if each.partition("=")[0] not in typed]
        tracker = f"+logger.kept.place={place.tracker}"
        own = f"hydra.{'sweep' if self.is_many else 'run'}.dir={folder}"
        return ["run.py", *self.overrides, *small, *place.overrides, *place.tracked, tracker, own]


KINDS = [
    Kind("inline", ()),
    Kind("loaders", ("data.num_workers=2", "parallel=single", "launcher=spawn")),
    Kind("cold", (*TWO, "launcher=spawn", "launcher.warm=false")),
    Kind("ddp", (*TWO, "checkpoint.asynchronous=true")),
    Kind("torchrun", (*TWO, "launcher=torchrun")),
    Kind("mpirun", (*TWO, "launcher=mpirun")),
    Kind("dp", ("parallel=dp",)),
    Kind("zero1", ("parallel=zero1", "launcher.nproc_per_node=2")),
    Kind("fsdp", ("parallel=fsdp", "launcher.nproc_per_node=2", "checkpoint.format=sharded")),
    Kind("pipeline", ("parallel=pipeline", "launcher.nproc_per_node=2", "trainer.grad_accumulation=2")),
    Kind("tensor", ("parallel=tensor", "launcher.nproc_per_node=2", "model=mlp")),
    Kind("local_sgd", ("parallel=local_sgd", "launcher.nproc_per_node=2")),
    Kind("horovod", ("parallel=horovod", "launcher=horovodrun", "launcher.nproc_per_node=2")),
    Kind(
        "replicas",
        ("parallel=replicated", "parallel.trusted_network=true", "launcher.nproc_per_node=2"),
        is_exact=False,
    ),
    Kind(
        "sweep", ("-m", "optimizer.lr=0.05,0.02", "parallel=single,ddp", "launcher.nproc_per_node=auto"), is_many=True
    ),
    Kind("sweep at once", ("-m", "seed=1,2,3,4", "hydra.launcher.jobs=2"), is_many=True),
    Kind("search", SEARCH, is_many=True),
    Kind("search at once", (*SEARCH, "hydra.sweeper.n_jobs=2", "hydra.launcher.jobs=2"), is_many=True),
    Kind("machines", NODES, where="machines"),
    Kind("slurm", (*TWO[:1], "launcher=slurm", "launcher.nodes=2", "launcher.nproc_per_node=1"), where="slurm"),
    Kind("ray", (*TWO[:1], "launcher=ray", "launcher.nodes=2", "launcher.nproc_per_node=1"), where="ray"),
]


@contextmanager
def placed(kind: Kind, folder: Path) -> Iterator[Place]:
    """Where a kind's commands run: with their own temporary folders, disk, shared memory, machines or engine."""
    from tests.launchers.nodes import cluster as machines
    from tests.launchers.slurm import cluster as slurm

    with ExitStack() as stack:
        place = stack.enter_context(Place(folder).prepared())
        if kind.where == "machines":
            first = f"mount --bind {place.shm} /dev/shm; "
            made = stack.enter_context(machines.started(folder, 3, named=True, first=first))
            place.cluster = made
            place.overrides += (f"launcher.remote_shell='{made.shell} {{host}}'", made.hosts(1))
        if kind.where == "slurm":
            (folder / "slurm").mkdir()
            place.slurm = stack.enter_context(slurm.started(folder / "slurm"))
            place.environment |= place.slurm.environment
        if kind.where == "ray":
            place.ray = stack.enter_context(ray())
            place.overrides += (f"launcher.address={place.ray.address}",)
        yield place


@contextmanager
def ray() -> Iterator[Any]:
    from tests.launchers.ray_cluster.cluster import cluster

    before = dict(os.environ)
    try:
        with cluster(nodes=2) as made:
            yield made
    finally:
        os.environ.clear()
        os.environ.update(before)
