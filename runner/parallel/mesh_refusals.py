"""The settings that a mesh of ranks does not work with, each with its reason and its remedy."""

from collections.abc import Callable
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.parallel_option import ParallelOption

SCHEDULES = {
    "gpipe": False,
    "1f1b": False,
    "interleaved": True,
    "looped_bfs": True,
}  # whether it needs several stages per rank


class Mesh(NamedTuple):
    """A mesh of ranks, and what its ranks do in it; the defaults are for a mesh without these keys."""

    layout: Layout
    schedule: str = "auto"
    stages_per_rank: int = 1
    sequence: bool = False

    @property
    def has_wrong_schedule(self) -> bool:
        """Whether the schedule is for several stages per rank, and there is one, or the reverse."""
        return self.schedule != "auto" and SCHEDULES[self.schedule] != (self.stages_per_rank > 1)

    @property
    def fewest_micro_batches(self) -> int:
        """The number of micro-batches that the schedule needs, to have one for each stage."""
        return self.layout.pipeline if self.schedule in ("1f1b", "interleaved") else 1


class Refusal(NamedTuple):
    """A setting that does not work with a mesh. ``way``: the dimension of the mesh, or "any"; ``key``: the setting.

    ``applies``: whether a resolved config with this mesh has it; ``reason`` and ``remedy``: the error's two sentences.
    """

    way: str
    key: str
    applies: Callable[[RunConfig, Mesh], bool]
    reason: str
    remedy: str


REFUSALS = [
    Refusal(
        "any",
        "precision with half-precision weights (amp at O2)",
        lambda run, mesh: run.precision.half_weights(on_gpus=run.on_gpus) is not None,
        "every rank would hold the complete fp32 copies",
        "Set precision=bf16, precision=amp precision.level=O1, or, where available, parallel.param_dtype=bfloat16.",
    ),
    Refusal(
        "any",
        "precision=apex",
        lambda run, mesh: run.precision.reloads_optimizer() is not None,
        "Apex changes the model and the optimizer in ways that do not work with shards",
        "Set precision=bf16 or amp.",
    ),
    Refusal(
        "any",
        "trainer.compile without trainer.compile_units",
        lambda run, mesh: run.trainer.compile != "none" and not run.trainer.compile_units,
        "ranks exchange between units, where the graph of a whole model would end",
        "Set trainer.compile_units=[auto], or trainer.compile=none.",
    ),
    Refusal(
        "any",
        "parallel.sequence without tensor ranks",
        lambda run, mesh: mesh.sequence and mesh.layout.tensor == 1,
        "the ranks that split layers also split sequences, and there is only one",
        "Set parallel.sequence=false, or, with parallel=mesh, parallel.tensor=2.",
    ),
    Refusal(
        "pipeline",
        "task=own_loss",
        lambda run, mesh: run.task.loss is None,
        "the model computes its loss, and no rank has more than a stage of it",
        "Set task=language_model, or another that computes the loss from the outputs, or parallel=fsdp.",
    ),
    Refusal(
        "pipeline",
        "a schedule for one stage per rank, with several stages (or the reverse)",
        lambda run, mesh: mesh.has_wrong_schedule,
        "gpipe and 1f1b need one stage per rank, interleaved and looped_bfs two or more",
        "Set parallel.stages_per_rank=2 with parallel.schedule=interleaved, or 1 with 1f1b.",
    ),
    Refusal(
        "pipeline",
        "trainer.grad_accumulation below the number of stages",
        lambda run, mesh: run.trainer.grad_accumulation < mesh.fewest_micro_batches,
        "the schedules 1f1b and interleaved keep every stage busy with a micro-batch of its own",
        "Set trainer.grad_accumulation to at least the number of ranks in a pipeline, or parallel.schedule=gpipe.",
    ),
    Refusal(
        "shard",
        "several stages per rank",
        lambda run, mesh: mesh.stages_per_rank > 1,
        "a unit's shards would be gathered for stages that do not run it",
        "Set parallel.stages_per_rank=1, or parallel.shard=1.",
    ),
    Refusal(
        "shard",
        "trainer.channels_last",
        lambda run, mesh: run.trainer.channels_last,
        "FSDP shards contiguous weights only",
        "Set trainer.channels_last=false, or parallel=ddp.",
    ),
    Refusal(
        "shard",
        "a backend other than the device's own",
        lambda run, mesh: run.parallel.backend == "gloo" and run.on_gpus,
        "NCCL gathers the shards if the weights are on GPUs",
        "Set parallel.backend=auto.",
    ),
]


class OnMeshOption(ParallelOption):
    """Declarations of a strategy whose ranks form a mesh."""

    def refuse_mesh(self, run: RunConfig, mesh: Mesh, *, what: str, layout: str = "") -> None:
        """Raises ConfigurationError if a setting does not work with this mesh.

        ``what``: the setting that has it, and its ``layout`` in words, for errors.
        """
        ways = {"any", *(way for way, size in mesh.layout._asdict().items() if size > 1)}
        for refusal in REFUSALS:
            if refusal.way in ways and refusal.applies(run, mesh):
                where = "" if refusal.way == "any" else layout
                raise ConfigurationError(
                    f"{refusal.key} does not work with {what}{where}: {refusal.reason}. {refusal.remedy}",
                    key=refusal.key.partition("=")[0],
                )
