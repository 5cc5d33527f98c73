"""Declarations of model-parallel strategies: the layout of their ranks, and the settings that it does not work with."""

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.software import too_old
from manyheads.runner.option.rules import (
    COMMUNICATION,
    COMPUTE,
    TEXT,
    Tunable,
    always,
    choice,
    either,
    list_of,
    never,
    powers_of_two,
    whole,
)
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout, filled
from manyheads.runner.parallel.parallel_option import ParallelOption

SCHEDULES = {
    "gpipe": False,
    "1f1b": False,
    "interleaved": True,
    "looped_bfs": True,
}  # whether it needs several stages per rank
# The lowest torch that a dimension works with, if higher than the project's own minimum; found by running on CPUs.
LOWEST_TORCH = {"shard": "2.7", "pipeline": "2.10"}
BYTES = {"none": 4, "float16": 2, "bfloat16": 2, "float32": 4}  # of a number; weights are in fp32
DTYPES = choice(*BYTES)
SUMS = 4  # of a block's activations over the ranks of a tensor group: after attention and after its MLP, in both passes


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
        "trainer.compile",
        lambda run, mesh: run.trainer.compile != "none",
        "torch.compile does not see the hooks that gather the model",
        "Set trainer.compile=none, or parallel=ddp.",
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


def refuse(run: RunConfig, mesh: Mesh, *, what: str, layout: str = "") -> None:
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


def refusal_table() -> str:
    """All refusals as a Markdown table, for the documentation."""
    lines = ["| in a mesh with | is refused | because | instead |", "|---|---|---|---|"]
    for refusal in REFUSALS:
        way = "any of them" if refusal.way == "any" else f"`{refusal.way}`"
        lines.append(f"| {way} | {refusal.key} | {refusal.reason} | {refusal.remedy} |")
    return "\n".join(lines)


def _schedules(run: RunConfig) -> Sequence[str]:
    return [name for name, has_several in SCHEDULES.items() if has_several == (run.parallel.stages_per_rank > 1)]


def _size(dimension: str) -> Tunable:
    """A dimension of the mesh: the sizes that leave whole numbers for the others."""

    def sizes(run: RunConfig) -> Sequence[int] | str:
        if run.parallel.remainder is None:
            return "the sizes of a mesh are set together"
        if run.parallel.remainder == dimension:
            return "it is what the other sizes leave"
        ranks = run.launcher.ranks
        return [size for size in powers_of_two(ranks) if ranks % size == 0]

    return Tunable(COMMUNICATION, sizes)


class MeshOption(ParallelOption):
    """A strategy whose ranks form a mesh, over torch.distributed. Its sizes are the section's keys of a Layout.

    ``remainder``: the size that stays ``auto`` in the run config, so that a run can be resumed with other ranks.
    """

    rules: ClassVar = {
        **dict.fromkeys(Layout._fields, either(whole(1), choice("auto"))),
        "units": either(choice("auto"), list_of(TEXT)),
        "reshard": choice("after_forward", "after_backward"),
        "prefetch": either(whole(0), choice("auto")),
        "param_dtype": DTYPES,
        "reduce_dtype": DTYPES,
        "schedule": choice("auto", *SCHEDULES),
        "stages": either(choice("auto"), list_of(TEXT)),
        "stages_per_rank": whole(1),
    }
    tunable: ClassVar = {
        **{dimension: _size(dimension) for dimension in Layout._fields},
        "units": Tunable(COMMUNICATION, never("which modules are gathered together is a matter of the model")),
        "reshard": Tunable(COMMUNICATION, always("after_forward", "after_backward")),
        "prefetch": Tunable(COMMUNICATION, always("auto", 1, 2)),
        "recompute": Tunable(COMPUTE, never("recomputing saves memory, and takes time")),
        "plan": Tunable(COMMUNICATION, never("which layers are split is a matter of the model")),
        "sequence": Tunable(COMMUNICATION, always(True, False)),
        "schedule": Tunable(COMMUNICATION, _schedules),
        "stages": Tunable(COMMUNICATION, never("where stages begin is a matter of the model")),
        "stages_per_rank": Tunable(COMMUNICATION, never("it needs another schedule, such as interleaved")),
    }
    color = "#9933ff"
    saves_memory = True
    changes_gradients: ClassVar = {"param_dtype": "none", "reduce_dtype": "none"}
    mixes_communication = True
    remainder: ClassVar[str | None] = None
    schedule: str = "auto"
    stages_per_rank: int = 1
    sequence: bool = False

    @property
    def sizes(self) -> dict[str, int | str]:
        """How many ranks the mesh has in each of its dimensions: a number, or "auto"."""
        return {key: self.section[key] for key in Layout._fields if key in self.section}

    def unavailable(self) -> str | None:
        used = {key for key, size in self.sizes.items() if size != 1}
        reasons = [too_old(lowest) for way, lowest in LOWEST_TORCH.items() if way in used]
        return next(filter(None, reversed(reasons)), None)  # if two, the newer torch

    def layout(self, ranks: int) -> Layout:
        """The mesh of this number of ranks. Raises ConfigurationError if the sizes do not fit it."""
        known = {key: int(size) for key, size in self.sizes.items() if size != "auto"}
        rest = [key for key in self.sizes if key not in known]
        if len(rest) > 1:
            keys = ", ".join(f"parallel.{key}" for key in rest)
            message = f"{keys}: only one of them can be auto. Set the others to numbers."
            raise ConfigurationError(message, key=f"parallel.{rest[0]}", value="auto")
        product = Layout(**known).ranks
        try:
            return filled(self.sizes, ranks=ranks)
        except ValueError:
            sizes = " x ".join(f"{key} {size}" for key, size in known.items())
            raise ConfigurationError.at(
                "parallel",
                self.name,
                f": {sizes} is {product}, which does not fit {ranks} ranks. Set "
                f"launcher.nproc_per_node={product}, or sizes whose product {'divides' if rest else 'is'} {ranks}"
                f"{'' if rest else ', one of them auto'}.",
            ) from None

    def resolved(self, run: RunConfig) -> RunConfig:
        layout = self.layout(run.launcher.ranks)
        return run.changed(parallel={key: getattr(layout, key) for key in self.sizes if key != self.remainder})

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        layout = self.layout(run.launcher.ranks)
        mesh = Mesh(layout, self.schedule, self.stages_per_rank, self.sequence)
        refuse(run, mesh, what=f"parallel={self.name}", layout=f" ({layout})")

    def data_shares(self, *, ranks: int) -> int:
        return self.layout(ranks).data_size

    def exchanges(self, *, devices: int) -> Exchanges:
        layout, dtypes = self.layout(devices), {key: self.section.get(key, "none") for key in self.changes_gradients}
        weights = BYTES[dtypes["param_dtype"]]
        gradients = weights if dtypes["reduce_dtype"] == "none" else BYTES[dtypes["reduce_dtype"]]
        again = self.section.get("reshard") == "after_forward"
        return Exchanges(
            layout,
            overlaps=layout.shard > 1,
            bucket_bytes=math.inf,
            gradient_scale=gradients / BYTES["none"],
            weight_scale=weights / BYTES["none"],
            gathers=(2 if again else 1) if layout.shard > 1 else 0,
            activation_sums=SUMS if layout.tensor > 1 else 0,
            schedule=self.schedule,
            stages_per_rank=self.stages_per_rank,
        )


class FSDPOption(MeshOption):
    """Sharded weights, and perhaps several copies of all shards."""

    color = "#662200"
    remainder = "shard"


class TensorOption(MeshOption):
    """Groups of ranks that share the arithmetic of layers."""

    color = "#cc79a7"
    remainder = "tensor"


class PipelineOption(MeshOption):
    """Stages, and perhaps several pipelines of them."""

    color = "#46008c"
    remainder = "pipeline"
