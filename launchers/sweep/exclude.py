"""hydra.launcher.exclude: combinations that a sweep leaves out."""

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.command_line import typed_values
from manyheads.runner.config.explain import QUOTES
from manyheads.runner.errors import ConfigurationError

Combination = dict[str, Any]
_ABSENT = object()
_NEXT = re.compile(r",(?=[^,=\[\]{}()]*=)")  # a comma before the next key, not one within a list


def combinations(exclude: Any) -> list[Combination]:
    """Parse ``parallel=dp,precision=apex``, {parallel: dp, precision: apex}, or a list of these.

    Raises ConfigurationError for anything else.
    """
    items = exclude if isinstance(exclude, list) else [exclude]
    return [_parse(item) for item in items if item]


def _parse(item: Any) -> Combination:
    if isinstance(item, dict):
        return {str(key): value for key, value in item.items()}
    found: Combination = {}
    for part in _NEXT.split(str(item)):
        value = typed_values([part.strip()])
        if not value or "" in value:
            raise ConfigurationError.at("hydra.launcher.exclude", item, f": {part!r} is not key=value. {QUOTES}")
        found |= value
    return found


def excluded_by(config: DictConfig, excluded: list[Combination]) -> Combination | None:
    """The first combination that a composed config matches completely."""
    return next((each for each in excluded if all(_holds(config, key, each[key]) for key in each)), None)


def written(combination: Combination) -> str:
    """A combination as it is typed on the command line."""
    return ",".join(f"{key}={value}" for key, value in combination.items())


def check_used(excluded: list[Combination], configs: list[DictConfig]) -> None:
    """Raises ConfigurationError for a combination that no job has, which would silently exclude nothing."""
    for each in excluded:
        if not any(excluded_by(config, [each]) for config in configs):
            raise ConfigurationError.at(
                "hydra.launcher.exclude",
                written(each),
                ": no job of this sweep has that value. Use keys and values that are swept.",
            )


def _holds(config: DictConfig, key: str, value: Any) -> bool:
    if key in config.hydra.runtime.choices:
        return config.hydra.runtime.choices[key] == str(value)
    return OmegaConf.select(config, key, default=_ABSENT) == value
