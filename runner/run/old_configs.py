"""Run configs that older versions froze, in today's words: classes that have moved, keys that are gone.

A run that was recorded once resumes, reports and reproduces for good: what is renamed gets a row here.
"""

from typing import Any, NamedTuple

from manyheads.runner.run.errors import ConfigurationError

MOVED = {
    "launchers.horovodrun.Horovodrun": "manyheads.launchers.horovodrun.Horovodrun",
    "launchers.inline.Inline": "manyheads.launchers.inline.Inline",
    "launchers.mpirun.Mpirun": "manyheads.launchers.mpirun.Mpirun",
    "launchers.spawn.Spawn": "manyheads.launchers.spawn.Spawn",
    "launchers.torchrun.Torchrun": "manyheads.launchers.torchrun.Torchrun",
    "runner.data.digits.Digits": "manyheads.runner.data.digits.option.Digits",
    "runner.data.imagefolder.ImageFolder": "manyheads.runner.data.imagefolder.option.ImageFolder",
    "runner.data.synthetic.Synthetic": "manyheads.runner.data.synthetic.option.Synthetic",
    "runner.data.torchvision.TorchvisionData": "manyheads.runner.data.torchvision.option.TorchvisionData",
    "runner.model.small_cnn.SmallCNN": "manyheads.runner.model.small_cnn.rank.SmallCNN",
    "runner.model.torchvision.TorchvisionModel": "manyheads.runner.model.torchvision.rank.torchvision_model",
    "runner.parallel.apex.ApexDistributedDataParallel": (
        "manyheads.runner.parallel.apex.rank.ApexDistributedDataParallel"
    ),
    "runner.parallel.ddp.DistributedDataParallel": "manyheads.runner.parallel.ddp.rank.DistributedDataParallel",
    "runner.parallel.dp.DataParallel": "manyheads.runner.parallel.dp.rank.DataParallel",
    "runner.parallel.horovod.Horovod": "manyheads.runner.parallel.horovod.rank.Horovod",
    "runner.parallel.single.Single": "manyheads.runner.parallel.single.rank.Single",
    "runner.precision.amp.AMP": "manyheads.runner.precision.amp.rank.AMP",
    "runner.precision.apex.Apex": "manyheads.runner.precision.apex.rank.Apex",
    "runner.precision.bf16.BF16": "manyheads.runner.precision.bf16.rank.BF16",
    "runner.precision.fp32.FP32": "manyheads.runner.precision.fp32.rank.FP32",
    "runner.precision.fp64.FP64": "manyheads.runner.precision.fp64.rank.FP64",
    "runner.precision.tf32.TF32": "manyheads.runner.precision.tf32.rank.TF32",
    "runner.schedulers.Constant": "manyheads.runner.scheduler.rank.Constant",
    "runner.schedulers.Cosine": "manyheads.runner.scheduler.rank.Cosine",
    "runner.schedulers.Step": "manyheads.runner.scheduler.rank.Step",
}


class Gone(NamedTuple):
    """A key of these options that is gone. ``neutral``: values that said what is always so now; None: any."""

    group: str
    options: tuple[str, ...]
    key: str
    neutral: tuple[Any, ...] | None = None
    instead: str = ""


IN_MEMORY = ("cifar10", "cifar100", "digits", "fashion_mnist", "mnist", "synthetic")
GONE = (
    Gone("data", ("imagefolder", "imagenet"), "decode", ("cpu",), "Images are decoded on the CPU; record the run anew"),
    Gone("data", ("digits", "synthetic"), "root"),
    Gone("data", ("synthetic",), "fingerprint"),
    Gone("data", IN_MEMORY, "on_corrupt"),
    Gone("parallel", ("single", "dp"), "timeout"),
    Gone("parallel", ("single", "dp", "horovod", "apex"), "backend"),
    Gone("launcher", ("torchrun",), "warm"),
)


def renewed(config: dict[str, Any]) -> dict[str, Any]:
    """A saved config with today's names, and without keys that are gone. Raises ConfigurationError."""
    sections = {name: _moved(section) for name, section in config.items()}
    for group, options, key, neutral, instead in GONE:
        section = sections.get(group)
        if not isinstance(section, dict) or key not in section or section.get("name") not in options:
            continue
        value = section.pop(key)
        if neutral is not None and value not in neutral:
            raise ConfigurationError(f"{group}.{key}={value}, which this version no longer has. {instead}.")
    return sections


def _moved(section: Any) -> Any:
    target = section.get("_target_") if isinstance(section, dict) else None
    return section if target is None else section | {"_target_": MOVED.get(target, target)}
