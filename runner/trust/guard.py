"""``--config-path`` and its like: whatever Hydra composes of somebody else's config is looked at before it is used."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.utils import get_args_parser
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.schema import CONF
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.seal import is_sealed_here
from manyheads.runner.trust.check import judge_with, own_values
from manyheads.runner.trust.packages import Trust, split_typed, trusted_packages

NO_RERUN = (
    "--experimental-rerun unpickles its file, which can run any code. Repeat a run from its folder: "
    "--config-path <run> --config-name run."
)


def guarded(arguments: list[str], *, home: Path) -> list[str]:
    """The command line without ``trust=...``. From now on configs are judged, unless they are the project's own.

    home: the folder that Hydra takes a relative --config-path from. Raises ConfigurationError.
    """
    flags = get_args_parser().parse_known_args(arguments[1:])[0]
    if flags.experimental_rerun is not None:
        raise ConfigurationError(NO_RERUN)
    typed, overrides = split_typed(flags.overrides)
    if typed or len(overrides) < len(flags.overrides):
        gone = set(flags.overrides) - set(overrides)
        arguments = [argument for argument in arguments if argument not in gone]
    if is_foreign(flags, home=home):
        own = (*typed_values(overrides), *recorded_values(_primary(flags, home=home)))
        judge_with(Trust(trusted_packages(typed), own))
        from manyheads.runner.trust.loader import guard_hydra

        guard_hydra(flags.config_path, overrides)
    return arguments


def is_foreign(flags: Any, *, home: Path) -> bool:
    """Whether Hydra is to read files that are not in conf/."""
    searches = any(override.lstrip("+~").startswith("hydra.searchpath") for override in flags.overrides)
    return searches or flags.config_dir is not None or not _primary(flags, home=home).resolve().is_relative_to(CONF)


def _primary(flags: Any, *, home: Path) -> Path:
    name = (flags.config_name or "config").removesuffix(".yaml")
    return home / (flags.config_path or CONF) / f"{name}.yaml"


def recorded_values(path: Path) -> Iterator[tuple[str, Any]]:
    """What a file names that the user himself has recorded on this host; nothing of any other."""
    if is_sealed_here(path):
        content = yaml.safe_load(path.read_bytes())
        with suppress(OmegaConfBaseException):  # then its plain values alone are the user's
            content = OmegaConf.to_container(OmegaConf.create(content), resolve=True)
        yield from own_values(content)


def typed_values(overrides: list[str]) -> Iterator[tuple[str, Any]]:
    """Each key with each value that the user typed for it; of a mapping also all that is in it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, Override
    from hydra.errors import HydraException

    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException:  # Hydra will say what is wrong
            continue
        value = parsed.value()
        choices = value.list if isinstance(value, ChoiceSweep) else [value]
        for choice in choices:
            yield from _inner(parsed.key_or_group, Override._convert_value(choice))  # type: ignore[arg-type]


def _inner(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield key, value
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from _inner(f"{key}.{name}", item)
