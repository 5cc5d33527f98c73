"""Declarations of model-parallel strategies: the layout of their ranks, and what these exchange."""

import math
from collections.abc import Sequence
from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.software import too_old
from manyheads.runner.option.rules import (
    BOOLEAN,
    COMMUNICATION,
    COMPUTE,
    TEXT,
    KeyKind,
    Rule,
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
from manyheads.runner.parallel.mesh_refusals import SCHEDULES, Mesh, OnMeshOption

# The lowest torch that a dimension works with, if higher than the project's own minimum; found by running on CPUs.
LOWEST_TORCH = {"shard": "2.7", "pipeline": "2.10"}
BYTES = {"auto": 4, "none": 4, "float16": 2, "bfloat16": 2, "float32": 4}  # of a number; weights are in fp32
DTYPES = choice(*BYTES)
SUMS = 4  # of a block's activations over the ranks of a tensor group: after attention and after its MLP, in both passes


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


PLAN = Rule(
    "patterns of layers, each with colwise, rowwise or scattered",
    lambda v: isinstance(v, dict) and all(isinstance(text, str) for text in (*v, *v.values())),
    {"type": "object", "additionalProperties": {"type": "string"}},
    KeyKind.TEXT,
)


class MeshOption(OnMeshOption):
    """A strategy whose ranks form a mesh, over torch.distributed. Its sizes are the section's keys of a Layout.

    ``remainder``: the size that stays ``auto`` in the run config, so that a run can be resumed with other ranks.
    """

    rules: ClassVar = {
        **dict.fromkeys(Layout._fields, either(whole(1), choice("auto"))),
        "units": either(choice("auto"), list_of(TEXT)),
        "plan": either(choice("auto"), PLAN),
        "reshard": choice("after_forward", "after_backward"),
        "recompute": either(BOOLEAN, choice("selective")),
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
        reasons = [too_old(lowest) for way, lowest in LOWEST_TORCH.items() if self.sizes.get(way, 1) != 1]
        return next(filter(None, reversed(reasons)), None)  # if two, the newer torch

    def layout(self, ranks: int) -> Layout:
        """The mesh of this number of ranks. Raises ConfigurationError if the sizes do not fit it."""
        fixed = {key: int(size) for key, size in self.sizes.items() if size != "auto"}
        rest = [key for key in self.sizes if key not in fixed]
        if len(rest) > 1:
            keys = ", ".join(f"parallel.{key}" for key in rest)
            raise ConfigurationError(
                f"{keys}: only one of them can be auto. Set the others to numbers.",
                key=f"parallel.{rest[0]}",
                value="auto",
            )
        product = Layout(**fixed).ranks
        try:
            return filled(self.sizes, ranks=ranks)
        except ValueError:
            sizes = " x ".join(f"{key} {size}" for key, size in fixed.items())
            raise ConfigurationError.at(
                "parallel",
                self.name,
                f": {sizes} is {product}, which does not fit {ranks} ranks. Set "
                f"launcher.nproc_per_node={product}, or sizes whose product {'divides' if rest else 'is'} {ranks}"
                f"{'' if rest else ', one of them auto'}.",
            ) from None

    def resolved(self, run: RunConfig) -> RunConfig:
        layout = self.layout(run.launcher.ranks)
        sizes = {key: getattr(layout, key) for key in self.sizes if key != self.remainder}
        gathers = self.remainder == "shard" or layout.shard > 1
        autocast = run.precision.autocast(on_gpus=run.on_gpus) if gathers else None
        return run.changed(parallel=sizes | self._resolved_dtypes(autocast))

    def _resolved_dtypes(self, autocast: str | None) -> dict[str, str]:
        """The values of the dtypes that are ``auto``. ``autocast``: the dtype of precision's, if weights are gathered.

        Autocast alone would gather fp32, and keep a bfloat16 copy of every weight until the backward pass. In float16
        the sums between blocks could overflow.
        """
        half = {"param_dtype": "bfloat16", "reduce_dtype": "float32"} if autocast == "bfloat16" else {}
        return {key: half.get(key, "none") for key in self.changes_gradients if self.section.get(key) == "auto"}

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        layout = self.layout(run.launcher.ranks)
        mesh = Mesh(layout, self.schedule, self.stages_per_rank, self.sequence)
        self.refuse_mesh(run, mesh, what=f"parallel={self.name}", layout=f" ({layout})")

    def data_shares(self, *, ranks: int) -> int:
        return self.layout(ranks).data_size

    def exchanges(self, *, devices: int) -> Exchanges:
        layout, dtypes = self.layout(devices), {key: self.section.get(key, "none") for key in self.changes_gradients}
        weights = BYTES[dtypes["param_dtype"]]
        gradients = weights if dtypes["reduce_dtype"] in ("auto", "none") else BYTES[dtypes["reduce_dtype"]]
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
    own_steps = several_optimizers = True
    remainder = "shard"


class TensorOption(MeshOption):
    """Groups of ranks that share the arithmetic of layers."""

    color = "#cc79a7"
    remainder = "tensor"


class PipelineOption(MeshOption):
    """Stages, and perhaps several pipelines of them."""

    color = "#46008c"
    remainder = "pipeline"
