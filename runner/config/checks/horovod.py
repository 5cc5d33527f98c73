"""What Horovod, its launchers and the other keys of a run config go together with; found without starting anything."""

import math
import os
from collections.abc import Iterator
from typing import Any

from manyheads.runner.machine import hardware
from manyheads.runner.parallel.horovod import installation as horovod
from manyheads.runner.run.errors import ConfigurationError, Unavailable
from manyheads.runner.run.layout import machines, ranks

STARTS_HOROVOD = ("horovodrun", "mpirun")
NAMES = {"gloo": "Gloo", "mpi": "MPI", "nccl": "NCCL"}


def missing_for(group: str, option: str) -> str | None:
    """Why an option can't run on this machine, and how to get it; None when it can, or needs nothing of ours."""
    if (group, option) in (("parallel", "horovod"), ("launcher", "horovodrun")):
        return horovod.unavailable()
    if (group, option) == ("launcher", "mpirun") and horovod.open_mpi() is None:
        return "Open MPI's mpirun is not on PATH. Install it (Debian: openmpi-bin), or use launcher=torchrun"
    return None


def built_with() -> str:
    """The features that were compiled in, in words."""
    *most, last = (text for name, text in NAMES.items() if horovod.has(name))
    return f"{', '.join(most)} and {last}" if most else last


def note(group: str, option: str) -> str:
    """What a runnable option of Horovod's comes to on this machine."""
    if (group, option) == ("parallel", "horovod"):
        gpus = len(hardware.gpu_names())
        if gpus and not horovod.has("nccl"):
            return f"slower than it could be: {gpus} ranks without NCCL; `{horovod.build_with('nccl')}` builds it in"
        controller = NAMES[horovod.controllers()[0]]
        return f"{gpus} ranks over NCCL" if gpus else f"2 CPU ranks over {controller}"
    if (group, option) == ("launcher", "horovodrun"):
        return f"built with {built_with()} for torch {horovod.built_for()}"
    if (group, option) == ("launcher", "mpirun"):
        without = "" if horovod.has("mpi") else "; for parallel=ddp only, without a Horovod built with MPI"
        return f"Open MPI {horovod.open_mpi()}{without}"
    return ""


def check_launcher(config: dict[str, Any]) -> None:
    """Decide ``launcher.controller``; raises ConfigurationError for a launcher that is not there."""
    launcher = config["launcher"]
    if config["parallel"]["name"] == "horovod" and (reason := missing_for("parallel", "horovod")):
        raise Unavailable(f"parallel=horovod: {reason}.")  # it is what was asked for, and brings its launcher
    if reason := missing_for("launcher", launcher["name"]):
        raise Unavailable(f"launcher={launcher['name']}: {reason}.")
    if launcher.get("hostfile") is not None:  # a run may go on from another directory
        launcher["hostfile"] = os.path.abspath(os.path.expanduser(launcher["hostfile"]))
    if launcher["name"] != "horovodrun":
        return
    built = horovod.controllers()
    if launcher["controller"] == "auto":
        launcher["controller"] = built[0]
    elif launcher["controller"] not in built:
        _refuse_controller(f"launcher.controller={launcher['controller']}", launcher["controller"])
    if launcher["controller"] == "mpi" and (reason := missing_for("launcher", "mpirun")):
        raise Unavailable(f"launcher.controller=mpi: {reason}, or launcher.controller=gloo.")


def check_parallel(config: dict[str, Any]) -> None:
    """Decide ``auto``; raises ConfigurationError for what Horovod can't do, or would do wrong without a word."""
    parallel, launcher = config["parallel"], config["launcher"]
    if launcher["name"] not in STARTS_HOROVOD:
        raise ConfigurationError(
            f"launcher={launcher['name']} can't start Horovod's ranks. Set launcher=horovodrun or launcher=mpirun."
        )
    if launcher["name"] == "mpirun" and not horovod.has("mpi"):
        _refuse_controller("parallel=horovod launcher=mpirun", "mpi")
    if parallel["backward_passes_per_step"] == "auto":
        parallel["backward_passes_per_step"] = config["trainer"]["grad_accumulation"]
    if parallel["timeline"] is not None:
        parallel["timeline"] = os.path.abspath(os.path.expanduser(parallel["timeline"]))
    half = config["precision"]["name"] == "amp" and config["precision"]["level"] == "O2"
    adasum = parallel["op"] == "adasum"
    for wrong in (*_wrong(config), *(_wrong_half(config) if half else ()), *(_wrong_adasum(config) if adasum else ())):
        raise ConfigurationError(wrong)


def _refuse_controller(what: str, controller: str) -> None:
    raise ConfigurationError(
        f"{what}: the installed Horovod was built without {controller.upper()}. Build it again with "
        f"`{horovod.build_with(controller)}`, or use launcher.controller="
        f"{' or '.join(horovod.controllers())} with launcher=horovodrun."
    )


def _wrong(config: dict[str, Any]) -> Iterator[str]:
    parallel, accumulation = config["parallel"], config["trainer"]["grad_accumulation"]
    if parallel["compression"] not in ("none", "fp16"):
        yield f"parallel.compression={parallel['compression']}: Horovod knows none and fp16. Set it to one of them."
    if parallel["backward_passes_per_step"] != accumulation:
        yield (
            f"parallel.backward_passes_per_step={parallel['backward_passes_per_step']} must be "
            f"trainer.grad_accumulation, which is {accumulation}. Set that, and this one to auto."
        )
    factor = parallel["gradient_predivide_factor"]
    if factor != 1 and (parallel["op"] != "average" or parallel["num_groups"] not in ("auto", 0)):
        yield (
            f"parallel.gradient_predivide_factor={factor:g} works with parallel.op=average and without groups only. "
            "Set it to 1, or parallel.op=average and parallel.num_groups=0."
        )


def _wrong_half(config: dict[str, Any]) -> Iterator[str]:
    """Of weights in half precision, Horovod exchanges the gradients as they are."""
    dtype, on_cpu = config["precision"]["dtype"], config["trainer"]["device"] == "cpu"
    if dtype == "bfloat16" or (dtype == "auto" and on_cpu):
        yield (
            f"precision.dtype={dtype}: with precision.level=O2 gradients are bfloat16{' here' * (dtype == 'auto')}, "
            "which Horovod can't exchange. Set precision.dtype=float16, precision.level=O1, or parallel=ddp."
        )
    if config["parallel"]["op"] == "adasum":
        yield (
            "precision.level=O2: parallel.op=adasum steps with the model's own weights, not with fp32 copies. "
            "Set precision.level=O1 or parallel.op=average."
        )


def _wrong_adasum(config: dict[str, Any]) -> Iterator[str]:
    """Adasum steps on its own, parameter by parameter, while the backward pass goes on."""
    launcher, trainer, precision = config["launcher"], config["trainer"], config["precision"]
    if (count := ranks(config)) & (count - 1):
        yield (
            f"parallel.op=adasum needs 1, 2, 4, 8, ... ranks, not {count}. Set launcher.nproc_per_node="
            f"{launcher['nproc_per_node']}{', or the number of hosts,' * bool(machines(config))} so that they are."
        )
    if launcher.get("controller") == "gloo":
        yield "parallel.op=adasum needs MPI. Set launcher.controller=mpi or launcher=mpirun."
    if config["parallel"]["num_groups"] not in ("auto", 0):
        yield f"parallel.num_groups={config['parallel']['num_groups']}: parallel.op=adasum has no groups. Set it to 0."
    if math.isfinite(trainer["clip_norm"]):
        yield f"trainer.clip_norm={trainer['clip_norm']:g}: parallel.op=adasum can't clip. Set it to inf."
    if trainer["on_nan"] == "skip":
        yield "trainer.on_nan=skip: parallel.op=adasum can't tell. Set trainer.on_nan=error."
    scales = precision["name"] == "apex" or (
        precision["name"] == "amp"
        and (precision["dtype"] == "float16" or (precision["dtype"] == "auto" and trainer["device"] == "cuda"))
    )
    if scales:
        yield (
            f"precision={precision['name']} scales fp16 gradients, which parallel.op=adasum would step with. Set "
            "precision=bf16, precision=fp32, or parallel.op=average."
        )
