"""Which keys of the config were swept, and what each job has there."""

from collections.abc import Sequence
from typing import Any

from manyheads.runner.config.schema import GROUPS
from manyheads.runner.report.material import Job, Material

DERIVED = ("launcher.threads_per_rank", "parallel.backward_passes_per_step")  # follow other keys unless chosen
FOLLOWS = {"launcher": "parallel"}  # parallel=ddp brings launcher=spawn


def swept_keys(material: Material) -> list[str]:
    """Keys in the order in which they were typed: those whose override differs; of loose runs, those that differ."""
    if material.folder is not None and any(job.overrides for job in material.jobs):
        names = dict.fromkeys(key for job in material.jobs for key in parsed(job.overrides))
        return [key for key in names if len({value_of(job, key) for job in material.jobs}) > 1]
    return differing_keys(material.jobs)


def parsed(overrides: Sequence[str]) -> dict[str, str]:
    """Overrides by key, without the signs that add and remove. Hydra's own are left out."""
    pairs = (override.partition("=") for override in overrides)
    found = {key.lstrip("+~").partition("@")[0]: value.strip("'\"") for key, _, value in pairs}
    return {key: value for key, value in found.items() if not key.startswith("hydra.") and key != "hydra"}


def value_of(job: Job, key: str) -> str:
    """What a job has at an override's key: what was typed, or what the config says, or nothing."""
    typed = parsed(job.overrides)
    if key in typed:
        return typed[key]
    return text_of(config_value(job.run.config, key))


def config_value(config: dict[str, Any], key: str) -> Any:
    """A key's value; of a group, its option's name."""
    return config.get(key, config.get(f"{key}.name"))


def text_of(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(text_of(part) for part in value) + "]"
    return str(value)


def differing_keys(jobs: Sequence[Job]) -> list[str]:
    """Config keys that differ, a group standing for the keys that follow from its option."""
    jobs = [job for job in jobs if job.run.config]
    typed = {key for job in jobs for key in parsed(job.overrides)}
    groups = [group for group in GROUPS if _varies(jobs, f"{group}.name")]
    groups = [group for group in groups if not _follows_group(jobs, group, groups, typed)]
    keys = dict.fromkeys(key for job in jobs for key in job.run.config)
    found = [
        key
        for key in keys
        if not key.endswith(("._target_", ".name"))
        and (key not in DERIVED or key in typed)
        and _varies(jobs, key)
        and (key in typed or not _follows_option(jobs, key))
    ]
    order = [*sorted(groups, key=lambda group: group != "parallel"), *found]
    return sorted(order, key=lambda key: key not in typed)  # sorted() is stable: typed ones first


def _follows_group(jobs: Sequence[Job], group: str, groups: list[str], typed: set[str]) -> bool:
    leader = FOLLOWS.get(group)
    if leader not in groups or group in typed:
        return False
    return not _varies_within(jobs, f"{leader}.name", f"{group}.name")


def _follows_option(jobs: Sequence[Job], key: str) -> bool:
    """Whether a key has one value for each option of its own group, or of the one that brings it."""
    group = key.partition(".")[0]
    leaders = [f"{leader}.name" for leader in (group, FOLLOWS.get(group)) if leader in GROUPS]
    return any(_varies(jobs, leader) and not _varies_within(jobs, leader, key) for leader in leaders)


def _varies(jobs: Sequence[Job], key: str) -> bool:
    return len({repr(job.run.config.get(key)) for job in jobs}) > 1


def _varies_within(jobs: Sequence[Job], leader: str, key: str) -> bool:
    found: dict[str, set[str]] = {}
    for job in jobs:
        found.setdefault(repr(job.run.config.get(leader)), set()).add(repr(job.run.config.get(key)))
    return any(len(values) > 1 for values in found.values())
