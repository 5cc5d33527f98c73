"""Finds the swept keys of the config, and their value in each job."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from manyheads.runner.config.lookup import ABOUT
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import OPTION
from manyheads.runner.records.run_set import REPEATING, RunSet, SweepJob
from manyheads.runner.records.values import config_value, text_of
from manyheads.runner.run.frozen import FlatConfig

FOLLOWS = {"launcher": "parallel"}  # parallel=ddp brings launcher=spawn
Item = TypeVar("Item")
Key = TypeVar("Key")


def swept_keys(run_set: RunSet) -> list[str]:
    """The swept keys in typed order: those whose override differs; for loose runs, those whose value differs.

    The seed or the fold is left out if rows average over it.
    """
    repeating = repeating_keys(run_set.jobs)
    if run_set.folder is not None and any(job.overrides for job in run_set.jobs):
        names = dict.fromkeys(key for job in run_set.jobs for key in parsed(job.overrides))
        return [key for key in names if key not in repeating and len({value_of(j, key) for j in run_set.jobs}) > 1]
    return [key for key in differing_keys(run_set.jobs) if key not in repeating]


def repeating_keys(jobs: Sequence[SweepJob]) -> list[str]:
    """The seed or the fold, or both, if jobs of one row differ in them."""
    rows = grouped(jobs, lambda job: job.row or job.number)
    return [key for key in REPEATING if any(len({value_of(job, key) for job in same}) > 1 for same in rows.values())]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by their keys, in order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def parsed(overrides: Sequence[str]) -> dict[str, str]:
    """Overrides by key, without + and ~. Hydra's own are left out."""
    pairs = (override.partition("=") for override in overrides)
    values = {key.lstrip("+~").partition("@")[0]: value.strip("'\"") for key, _, value in pairs}
    return {key: value for key, value in values.items() if not key.startswith("hydra.") and key != "hydra"}


def value_of(job: SweepJob, key: str) -> str:
    """A job's value for an override's key: as typed, else from the config, else empty."""
    typed = parsed(job.overrides)
    return typed[key] if key in typed else text_of(config_value(job.run.config, key))


def differing_keys(jobs: Sequence[SweepJob]) -> list[str]:
    """Config keys that differ; a group represents the keys that follow from its option."""
    jobs = [job for job in jobs if job.run.config]
    configs = [job.run.config for job in jobs]
    typed = {key for job in jobs for key in parsed(job.overrides)}
    groups = [group for group in GROUPS if varies(configs, f"{group}.name")]
    groups = [
        group
        for group in groups
        if group in typed
        or (leader := FOLLOWS.get(group)) not in groups
        or not follows(configs, f"{leader}.name", f"{group}.name")
    ]
    derived = _derived(jobs)
    keys = [
        key
        for key in dict.fromkeys(key for config in configs for key in config)
        if not key.endswith(("._target_", f".{OPTION}", ".name"))
        and varies(configs, key)
        and (key in typed or not (key in ABOUT or key in derived or _follows_option(configs, key)))
    ]
    order = [*sorted(groups, key=lambda group: group != "parallel"), *keys]
    return sorted(order, key=lambda key: key not in typed)  # sorted() is stable: typed ones first


def _derived(jobs: Sequence[SweepJob]) -> set[str]:
    """Keys that are derived from other keys unless set, as the jobs' options declare."""
    asked = {(group, job.run.config.get(f"{group}.{OPTION}")): job.run for job in jobs for group in GROUPS}
    return {f"{group}.{key}" for (group, _), run in asked.items() for key in run.declared(group).every("derived")}


def varies(configs: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether a key has several values."""
    return len({repr(config.get(key)) for config in configs}) > 1


def varying(configs: Iterable[FlatConfig]) -> set[str]:
    """The keys that have several values, or that some configs lack. Sections that configs share are not compared."""
    keys, first = set[str](), FlatConfig()
    for number, config in enumerate(configs):
        first = first if number else config
        for name in config.sections.keys() | first.sections.keys():
            one, other = config.sections.get(name, {}), first.sections.get(name, {})
            if one is not other:
                keys |= one.keys() ^ other.keys()
                keys.update(key for key in one.keys() & other.keys() if repr(one[key]) != repr(other[key]))
    return {key for key in keys if not key.endswith(f".{OPTION}")}


def follows(configs: Sequence[Mapping[str, Any]], leader: str, key: str) -> bool:
    """Whether a key has exactly one value for each value of ``leader``."""
    pairs = {(repr(config.get(leader)), repr(config.get(key))) for config in configs}
    return len(pairs) == len({value for value, _ in pairs})


def _follows_option(configs: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether a key has exactly one value for each option of its own group, or of the group that sets it."""
    group = key.partition(".")[0]
    leaders = [f"{leader}.name" for leader in (group, FOLLOWS.get(group)) if leader in GROUPS]
    return any(varies(configs, leader) and follows(configs, leader, key) for leader in leaders)


def titles(keys: Sequence[str]) -> dict[str, str]:
    """A title for each key: its last part, if that is unambiguous."""
    leaves = [key.rpartition(".")[2] for key in keys]
    return {key: leaf if leaves.count(leaf) == 1 else key for key, leaf in zip(keys, leaves, strict=True)}


def short_label(values: Mapping[str, str], *without: str | None) -> str:
    """Swept values in short form, such as «ddp lr 0.01»: options without their group, other values with their key."""
    names = titles(list(values))
    return " ".join(
        value if key in GROUPS else f"{names[key]} {value}"
        for key, value in values.items()
        if value and key not in without
    )


WIDE = 8  # ratio of the largest to the smallest value from which a scale is logarithmic


def as_numbers(texts: Sequence[str]) -> list[float] | None:
    """The texts as numbers; None if one of them is not a number."""
    with suppress(ValueError):
        numbers = [float(text) for text in texts]
        return numbers if all(map(math.isfinite, numbers)) else None
    return None


def is_wide(values: Iterable[float]) -> bool:
    """Whether positive values are so far apart that the small ones would overlap on a linear scale."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) / min(finite) >= WIDE
