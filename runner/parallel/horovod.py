"""Declarations of parallel=horovod: what it works with, found without starting anything."""

import math
import os
from typing import ClassVar

from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.option.rules import AUTO, COMMUNICATION, PLACE, Tunable, always, choice, either, number, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel import horovod_installation as horovod
from manyheads.runner.parallel.exchanges import MEGABYTE, Exchanges
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.parallel_option import SENT, ParallelOption

GROUP_MB = 25  # as large as DistributedDataParallel's buckets


class HorovodOption(ParallelOption):
    """The keys are DistributedOptimizer's arguments and Horovod's settings."""

    rules: ClassVar = {
        "op": choice("average", "sum", "adasum"),
        "backward_passes_per_step": either(whole(1), AUTO),
        "num_groups": either(whole(0), AUTO),
        "fusion_threshold": number(at_least=0),
        "cycle_time": number(above=0),
        "timeline": PLACE,
    }
    derived = ("backward_passes_per_step",)
    tunable: ClassVar = {
        "num_groups": Tunable(COMMUNICATION, always("auto", 0, 1)),
        "fusion_threshold": Tunable(COMMUNICATION, always(16, 64, 128)),
        "cycle_time": Tunable(COMMUNICATION, always(0.5, 1.0, 3.0)),
    }
    color = "#d55e00"
    changes_gradients: ClassVar = {"compression": "none", "op": "average"}
    op: str
    compression: str
    backward_passes_per_step: int  # "auto" until it is resolved
    num_groups: int | str
    gradient_predivide_factor: float
    fusion_threshold: float
    cycle_time: float
    timeout: float
    timeline: str | None

    def unavailable(self) -> str | None:
        return horovod.unavailable()

    def note(self) -> str:
        gpus = len(hardware.gpu_names())
        if gpus and not horovod.has("cuda"):
            return (
                f"on CPUs only, with trainer.device=cpu; `{horovod.build_with('nccl')}` builds it for the {gpus} GPUs"
            )
        if gpus and not horovod.has("nccl"):
            return f"slower than it could be: {gpus} ranks without NCCL; `{horovod.build_with('nccl')}` adds it"
        return f"{gpus} ranks over NCCL" if gpus else f"2 CPU ranks over {horovod.NAMES[horovod.controllers()[0]]}"

    def installed(self) -> dict[str, str]:
        version = horovod.version()
        if version is None:
            return {"Horovod": f"not installed: {horovod.BUILD}"}
        if horovod.unavailable():
            return {"Horovod": f"{version}, which is unusable here; see parallel=horovod"}
        return {"Horovod": f"{version}, built with {horovod.built_with()}"}

    def versions(self) -> dict[str, str | None]:
        return {"horovod": horovod.version()}

    def stand_in(self) -> ParallelOption:
        section = {
            "_target_": "manyheads.runner.parallel.rank.process_group.Replicas",
            "name": "horovod",
            "timeout": self.timeout,
            "bucket_cap_mb": GROUP_MB if self.num_groups == "auto" else max(1, self.fusion_threshold),
            "gradient_as_bucket_view": False,
            "static_graph": True,
            "find_unused_parameters": False,
            "broadcast_buffers": False,
            "sync_batchnorm": False,
        }
        return ParallelOption(section)

    def exchanges(self, *, devices: int) -> Exchanges:
        if self.op == "adasum":
            raise self.unpredictable("Adasum's own reduction is not modelled", key="parallel.op", value=self.op)
        together = GROUP_MB if self.num_groups == "auto" else self.fusion_threshold
        return Exchanges(
            Layout(replicate=devices),
            overlaps=True,
            bucket_bytes=max(1, together * MEGABYTE),
            cycle=self.cycle_time / 1000,
            gradient_scale=SENT[self.compression],
        )

    def resolved(self, run: RunConfig) -> RunConfig:
        run = self.accumulating(run) if self.section["backward_passes_per_step"] == "auto" else run
        path = self.timeline and os.path.abspath(os.path.expanduser(self.timeline))
        return run.changed(parallel={"timeline": path})

    def accumulating(self, run: RunConfig) -> RunConfig:
        return run.changed(parallel={"backward_passes_per_step": run.trainer.grad_accumulation})

    def check_run(self, run: RunConfig) -> None:
        """Refuse what Horovod cannot do, or would silently do wrong."""
        super().check_run(run)
        launcher, controller = run.launcher.name, run.launcher.horovod_controller
        if controller is None:
            raise ConfigurationError.at(
                "launcher", launcher, " can't start Horovod's ranks. Set launcher=horovodrun or launcher=mpirun."
            )
        if run.on_gpus and not horovod.has("cuda"):
            raise Unavailable.at(
                "parallel",
                "horovod",
                ": the installed Horovod was built without CUDA, and does not support tensors on "
                f"GPUs. Build it with `{horovod.build_with('nccl')}`, or set trainer.device=cpu.",
            )
        if not horovod.has(controller):
            horovod.refuse_controller(f"parallel=horovod launcher={launcher}", controller)
        trainer = run.trainer
        refusals = [*self._wrong(trainer.grad_accumulation, trainer.channels_last), *self._wrong_half(run)]
        if self.op == "adasum":
            refusals += [*self._wrong_adasum(run, controller), *self._without_gradients(run)]
        for applies, message in refusals:
            if applies:
                raise ConfigurationError(message)

    def _wrong(self, accumulation: int, channels_last: bool) -> list[tuple[bool, str]]:
        """Refusals, each with whether it applies."""
        factor = self.gradient_predivide_factor
        return [
            (
                self.compression not in ("none", "fp16"),
                f"parallel.compression={self.compression}: Horovod has none and fp16 only. Set one of them.",
            ),
            (
                self.backward_passes_per_step != accumulation,
                f"parallel.backward_passes_per_step={self.backward_passes_per_step} must equal "
                f"trainer.grad_accumulation, which is {accumulation}. Set that key, and this one to auto.",
            ),
            (
                channels_last,
                "trainer.channels_last=true: Horovod exchanges contiguous tensors only, and the weights and "
                "gradients of convolutions then are not contiguous. Set it to false, or parallel=ddp.",
            ),
            (
                factor != 1 and (self.op != "average" or self.num_groups not in ("auto", 0)),
                f"parallel.gradient_predivide_factor={factor:g} works with parallel.op=average and without groups "
                "only. Set it to 1, or parallel.op=average and parallel.num_groups=0.",
            ),
        ]

    def _wrong_half(self, run: RunConfig) -> list[tuple[bool, str]]:
        """Refusals of half-precision weights, whose gradients Horovod exchanges unchanged."""
        half = run.precision.half_weights(on_gpus=run.on_gpus)
        if half is None:
            return []
        here = " here" * half.dtype_key.endswith("=auto")
        return [
            (
                half.dtype == "bfloat16",
                f"{half.dtype_key}: with {half.key} gradients are bfloat16{here}, which Horovod can't exchange. Set "
                f"{half.other_dtype}, {half.other}, or parallel=ddp.",
            ),
            (
                self.op == "adasum",
                f"{half.key}: parallel.op=adasum steps with the model's own weights, not with fp32 copies. "
                f"Set {half.other} or parallel.op=average.",
            ),
        ]

    def _wrong_adasum(self, run: RunConfig, controller: str) -> list[tuple[bool, str]]:
        """Refusals of ranks and keys with which Adasum cannot run."""
        launcher, count = run.launcher, run.launcher.ranks
        return [
            (
                bool(count & (count - 1)),
                f"parallel.op=adasum needs 1, 2, 4, 8, ... ranks, not {count}. Change "
                f"launcher.nproc_per_node={launcher.nproc_per_node}"
                f"{' or the number of hosts' * bool(launcher.machines)}.",
            ),
            (
                controller == "gloo",
                "parallel.op=adasum needs MPI. Set launcher.controller=mpi or launcher=mpirun.",
            ),
            (
                self.num_groups not in ("auto", 0),
                f"parallel.num_groups={self.num_groups}: parallel.op=adasum does not support groups. Set it to 0.",
            ),
        ]

    def _without_gradients(self, run: RunConfig) -> list[tuple[bool, str]]:
        """Refusals of what needs the gradients of all ranks: Adasum steps during the backward pass, without them."""
        trainer = run.trainer
        return [
            (
                math.isfinite(trainer.clip_norm),
                f"trainer.clip_norm={trainer.clip_norm:g}: parallel.op=adasum can't clip. Set it to inf.",
            ),
            (
                math.isfinite(trainer.clip_value),
                f"trainer.clip_value={trainer.clip_value:g}: parallel.op=adasum can't clip. Set it to inf.",
            ),
            (
                trainer.on_nan == "skip",
                "trainer.on_nan=skip: parallel.op=adasum can't detect it. Set trainer.on_nan=error.",
            ),
            (
                bool(trainer.verify_every),
                "trainer.verify_every: parallel.op=adasum exchanges no gradients to compare. Set it to 0.",
            ),
            (
                trainer.on_spike is not None,
                f"trainer.on_spike={trainer.on_spike}: parallel.op=adasum exchanges what its step has changed, when "
                "nothing can be skipped any more. Set it to null, or op=average.",
            ),
            (
                trainer.sam_rho is not None,
                f"trainer.sam_rho={trainer.sam_rho}: parallel.op=adasum does not have the gradients of all ranks. "
                "Set op=average.",
            ),
            (
                bool(run.parameters.freeze_epochs),
                "parameters.freeze_epochs: parallel.op=adasum combines updates, not gradients, and would change "
                "frozen parameters. Set op=average.",
            ),
            (
                run.precision.scales_gradients(on_gpus=run.on_gpus),
                f"precision={run.precision.name} scales fp16 gradients, which parallel.op=adasum would step with. Set "
                "precision=bf16, precision=fp32, or parallel.op=average.",
            ),
        ]
