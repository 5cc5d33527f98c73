"""What NVIDIA Apex and the other keys of a run config go together with; found without starting anything."""

from collections.abc import Iterator
from typing import Any

from manyheads.runner.config.schema import read_option
from manyheads.runner.machine import apex
from manyheads.runner.run.errors import ConfigurationError, Unavailable

STRATEGIES = ("single", "ddp", "horovod", "apex")  # that amp.initialize's patched forward works under


def part_of(group: str, section: dict[str, Any]) -> str | None:
    """The part of Apex that a section of the run config makes use of."""
    if group == "optimizer":
        return "optimizers" if section["_target_"].startswith("apex.") else None
    return {"precision": "amp", "parallel": "parallel"}.get(group) if section["name"] == "apex" else None


def missing_for(group: str, option: str) -> str | None:
    """Why an option can't run on this machine, and how to get it; None when it can, or needs nothing of Apex."""
    part = part_of(group, read_option(group, option))
    return apex.unavailable(part) if part else None


def note(group: str, option: str) -> str:
    """What is worth knowing of an option of Apex that can run."""
    if part_of(group, read_option(group, option)) and not apex.has_kernels():
        return "slower than it could be: Apex was built without its CUDA extensions"
    return ""


def check(config: dict[str, Any]) -> None:
    """Raises ConfigurationError for what Apex lacks, refuses, or would do wrong without a word."""
    used = {group: part for group in ("precision", "parallel", "optimizer") if (part := part_of(group, config[group]))}
    for group, part in used.items():
        chosen = f"{group}={config[group]['name']}"
        if reason := apex.unavailable(part):
            raise Unavailable(f"{chosen}: {reason}.")
        if config["trainer"]["device"] == "cpu":
            raise Unavailable(
                f"trainer.device=cpu: {chosen} works on GPUs only. Set trainer.device=cuda, or use {apex.NATIVE[part]}."
            )
    wrong = {"precision": _wrong_precision, "parallel": _wrong_parallel, "optimizer": _wrong_optimizer}
    for group in used:
        for error in wrong[group](config):
            raise ConfigurationError(error)


def _wrong_precision(config: dict[str, Any]) -> Iterator[str]:
    precision, strategy, compile_mode = config["precision"], config["parallel"]["name"], config["trainer"]["compile"]
    level = precision["opt_level"]
    if strategy not in STRATEGIES:
        yield (
            f"precision=apex does not work with parallel={strategy}. "
            f"Set parallel to {', '.join(STRATEGIES)}, or use {apex.NATIVE['amp']}."
        )
    if compile_mode != "none":
        yield (
            f"trainer.compile={compile_mode}: precision=apex patches functions that torch.compile looks through. "
            f"Set trainer.compile=none, or use {apex.NATIVE['amp']}."
        )
    for key in ("keep_batchnorm_fp32", "master_weights"):
        if level == "O1" and precision[key] is not None:
            yield (
                f"precision.{key}={str(precision[key]).lower()}: with precision.opt_level=O1 all weights are fp32. "
                "Set it to null, or precision.opt_level=O2."
            )


def _wrong_parallel(config: dict[str, Any]) -> Iterator[str]:
    if (compile_mode := config["trainer"]["compile"]) != "none":
        yield (
            f"trainer.compile={compile_mode}: parallel=apex fills its buckets by hooks that torch.compile does not "
            "see. Set trainer.compile=none, or use parallel=ddp."
        )


def _wrong_optimizer(config: dict[str, Any]) -> Iterator[str]:
    name, precision = config["optimizer"]["name"], config["precision"]
    if precision["name"] == "fp64":
        yield (
            f"optimizer={name}: Apex's kernels know no fp64; FusedSGD would leave such weights as they are. "
            f"Use {apex.NATIVE['optimizers']}, or precision=fp32."
        )
    if name == "fused_novograd" and precision["name"] == "apex" and precision["opt_level"] != "O1":
        # FusedNovoGrad.load_state_dict wants norms that the first step makes; amp.initialize calls it before that.
        yield (
            f"precision.opt_level={precision['opt_level']}: FusedNovoGrad fails in amp.initialize at all levels but "
            "O1. Set precision.opt_level=O1, or optimizer=fused_lamb."
        )
