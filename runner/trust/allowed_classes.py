"""Classes that a config from anybody may name: models, losses, optimizers, ... of torch, torchvision, this project."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from manyheads.runner.config.lookup import CONF, NAMED, options, read_option
from manyheads.runner.option.declared import GROUPS, declared_class
from manyheads.runner.run.locate import OPTION, load

PACKAGES = ("torch", "torchvision", "manyheads")
# Where classes of each kind are. Modules elsewhere aren't even imported: some do things when they are.
PLACES = {
    "model": ("torch.nn", "torchvision.models", "torchvision.ops", "manyheads.runner.model"),
    "loss": ("torch.nn", "torchvision.ops"),
    "optimizer": ("torch.optim", "torch.distributed.optim", "manyheads.runner.optimizer.rank"),
    "scheduler": ("torch.optim", "manyheads.runner.scheduler.rank"),
    "data": ("torch.utils.data", "torchvision.datasets", "manyheads.runner.data"),
    "transforms": ("torchvision.transforms",),
}
# These unpickle files of the data's folder (torchvision 0.21 to 0.30), or call what they are given.
EXCEPT = ("torchvision.datasets.lsun", "torch.utils.data.datapipes")


@cache
def own_declarations(group: str) -> frozenset[str]:
    """The names of the classes by which the project's own options of this group declare themselves."""
    return frozenset(name for option in _sections(group) if (name := option.get(OPTION)) is not None)


@cache
def own_steering(group: str) -> frozenset[str]:
    """The keys of this group that nobody else's config may set, as the project's own options declare them."""
    return frozenset(key for section in _sections(group) for key in declared_class(group, section).every("steering"))


def is_harmless(group: str | None, target: str) -> bool:
    """Whether any config may have ``target`` in this group; None: somewhere deeper, as any kind of class."""
    if group is not None and target in _of_conf(group):
        return True
    if any(part.startswith("_") for part in target.split(".")):
        return False
    kinds = [group] if group in PLACES else list(PLACES) if group is None else []
    return any(_is_class(kind, target) for kind in kinds)


@cache
def _of_conf(group: str) -> set[str]:
    """The targets of the project's own options, which need no look at their class."""
    if group == "loss":
        return {yaml.safe_load((Path(CONF) / "config.yaml").read_text())["loss"]["_target_"]}
    if group in NAMED:
        return {entry["_target_"] for name in options(group) for entry in read_option(group, name).values()}
    return {section["_target_"] for section in _sections(group)} - {"???"}


def _sections(group: str) -> list[dict[str, Any]]:
    return [read_option(group, name) for name in options(group)] if group in GROUPS else []


def _is_below(name: str, places: tuple[str, ...]) -> bool:
    return any(name.startswith(f"{place}.") for place in places)


def _is_class(kind: str, target: str) -> bool:
    """Torch is imported here only, for targets that are no option's."""
    if not _is_below(target, PLACES[kind]):
        return False
    try:
        found = load(target)
    except Exception:  # there is no such thing, or it can't be imported here
        return False
    if not isinstance(found, type) or found.__module__.partition(".")[0] not in PACKAGES:
        return False
    if _is_below(f"{found.__module__}.{found.__name__}", EXCEPT):
        return False
    if kind == "transforms":
        return _is_below(f"{found.__module__}.", PLACES[kind])
    from manyheads.runner.trust.rank import BASES

    return issubclass(found, BASES[kind])
