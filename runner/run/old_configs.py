"""Run configs that older versions froze, in today's words: classes that have moved, keys that are gone.

A run that was recorded once resumes, reports and reproduces for good: what is renamed gets a row here.
"""

import re
from typing import Any, NamedTuple

from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import OPTION

MOVED = (  # what a class was called, and where it is now
    (r"launchers\.(\w+)\.(\w+)", r"manyheads.launchers.\1.\2"),
    (r"runner\.data\.(\w+)\.(\w+)", r"manyheads.runner.data.\1.option.\2"),
    (r"runner\.model\.torchvision\.TorchvisionModel", "manyheads.runner.model.torchvision.rank.torchvision_model"),
    (r"runner\.(model|parallel|precision)\.(\w+)\.(\w+)", r"manyheads.runner.\1.\2.rank.\3"),
    (r"runner\.schedulers\.(\w+)", r"manyheads.runner.scheduler.rank.\1"),
    (r"(manyheads\.runner\.parallel\.replicated\.rank)\.Replicated", r"\1.replica"),
)

R = r"manyheads\.runner\."
DECLARED = (  # a class whose config had no key _option_ once, and what that key has to say
    (rf"({R}data\.(digits|imagefolder|synthetic|torchvision))\.option\.(\w+)", r"\1.option.\3Option"),
    (rf"({R}model\.small_cnn)\.rank\.(\w+)", r"\1.option.\2Option"),
    (rf"({R}parallel\.(apex|ddp|dp|horovod|single))\.rank\.(\w+)", r"\1.option.\3Option"),
    (rf"({R}precision\.(amp|apex|bf16|fp32|fp64|tf32))\.rank\.(\w+)", r"\1.option.\3Option"),
    (rf"{R}model\.torchvision\.rank\.\w+", "manyheads.runner.model.torchvision.option.TorchvisionOption"),
    (r"apex\.optimizers\.FusedNovoGrad", "manyheads.runner.optimizer.apex.option.FusedNovoGradOption"),
    (r"apex\.optimizers\.Fused\w+", "manyheads.runner.optimizer.apex.option.FusedOption"),
    (r"manyheads\.launchers\.(inline|spawn|torchrun|horovodrun|mpirun)\.(\w+)", r"manyheads.launchers.\1.\2Option"),
)


class Gone(NamedTuple):
    """A key of these options that is gone. ``neutral``: values that said what is always so now; None: any."""

    group: str
    options: tuple[str, ...]
    key: str
    neutral: tuple[Any, ...] | None = None
    instead: str = ""


IN_MEMORY = ("cifar10", "cifar100", "digits", "fashion_mnist", "mnist", "synthetic")
GONE = (
    Gone(
        "data",
        ("imagefolder", "imagenet"),
        "decode",
        ("cpu",),
        "Images are decoded on the CPU now; record the run again",
    ),
    Gone("data", ("digits", "synthetic"), "root"),
    Gone("data", ("synthetic",), "fingerprint"),
    Gone("data", IN_MEMORY, "on_corrupt"),
    Gone("parallel", ("single", "dp"), "timeout"),
    Gone("parallel", ("single", "dp", "horovod", "apex"), "backend"),
    Gone("launcher", ("torchrun",), "warm"),
)
# Before there were tasks, each run was of this one, whose loss returned a mean, whatever it was, and had this logger.
TASK = {
    "_target_": "manyheads.runner.task.classification.rank.Classification",
    "_option_": "manyheads.runner.task.classification.option.ClassificationOption",
    "name": "classification",
    "reduction": "mean",
}
LOGGER = {"tensorboard": {"_target_": "manyheads.runner.logger.tensorboard.rank.TensorBoard"}}


def renewed(config: dict[str, Any]) -> dict[str, Any]:
    """A saved config with today's names and groups, and without keys that are gone. Raises ConfigurationError."""
    sections = with_options(config)
    if isinstance(sections.get("model"), dict) and isinstance(sections.get("parallel"), dict):
        sections.setdefault("task", TASK)
        sections.setdefault("logger", LOGGER)
        sections |= {name: sections.get(name, {}) for name in ("metrics", "callbacks")}
    for group, options, key, neutral, instead in GONE:
        section = sections.get(group)
        if not isinstance(section, dict) or key not in section or section.get("name") not in options:
            continue
        value = section.pop(key)
        if neutral is not None and value not in neutral:
            raise ConfigurationError(f"{group}.{key}={value}, which this version no longer has. {instead}.")
    return sections


def with_options(config: dict[str, Any]) -> dict[str, Any]:
    """A saved config with today's names of classes, and with what its options declare themselves by."""
    return {name: _declared(_moved(section)) for name, section in config.items()}


def _declared(section: Any) -> Any:
    """What the classes that had no key ``_option_`` when they were recorded have now."""
    target = section.get("_target_") if isinstance(section, dict) else None
    if not isinstance(target, str) or OPTION in section:
        return section
    found = (re.sub(old, new, target) for old, new in DECLARED if re.fullmatch(old, target))
    return section if (name := next(found, None)) is None else section | {OPTION: name}


def _moved(section: Any) -> Any:
    target = section.get("_target_") if isinstance(section, dict) else None
    found = (re.sub(old, new, target) for old, new in MOVED if isinstance(target, str) and re.fullmatch(old, target))
    return section if (renamed := next(found, None)) is None else section | {"_target_": renamed}
