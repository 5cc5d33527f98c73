"""Composes run configs from overrides, without starting runs."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.command_line import CommandLine, searching
from manyheads.runner.config.freeze import checked
from manyheads.runner.config.hydra_errors import check_experiment, explained
from manyheads.runner.config.hydra_version import composing_from_conf
from manyheads.runner.config.origin import Origin
from manyheads.runner.option.run_config import RunConfig


def run_config(words: Sequence[str], line: CommandLine, origin: Origin) -> RunConfig:
    """The run config as it would be frozen. ``words``: overrides of groups and keys. Raises ConfigurationError."""
    folders = line.folders
    path = [searching(folders[1:])] if folders[1:] else []
    check_experiment(OmegaConf.create(list(words)), folders)
    with explained(line), composing_from_conf():
        composed = compose("config", [*words, *path])
    return checked(composed, admit=origin.admit, folders=folders)


Compose = Callable[..., DictConfig]
STEERING = ("hydra.searchpath", "hydra.job.env_copy")  # values that Hydra reads while it composes


class Compositions:
    """Composed configs, shared by loaders that search the same folders. ``compose``: Hydra's own function."""

    def __init__(self, compose: Compose):
        self._compose, self._parser = compose, OverridesParser.create()
        self._overrides: dict[str, Override] = {}
        self._repositories: dict[Any, Any] = {}
        self._composed: dict[Any, bytes] = {}

    def compose(
        self,
        loader: ConfigLoaderImpl,
        name: str | None,
        overrides: list[str],
        parsed_overrides: Sequence[Override] | None = None,
        **how: Any,
    ) -> DictConfig:
        """Compose with ``loader``; if only values differ from an earlier config, reuse it. Raises what Hydra raises.

        ``parsed_overrides``: with what Hydra 1.4 sets for aliases; 1.3 gives texts alone.
        """
        texts = overrides if parsed_overrides is None else [_text(override) for override in parsed_overrides]
        try:
            return self._by_values(loader, name, [self._parsed(text) for text in texts], how)
        except (HydraException, OmegaConfBaseException):  # again, for Hydra's own message on what was typed
            return self._compose(loader, name, texts, **how)

    def _parsed(self, text: str) -> Override:
        """The parsed override, cached, since the jobs of a sweep have most overrides in common."""
        if text not in self._overrides:
            self._overrides[text] = self._parser.parse_override(text)
        return self._overrides[text]

    def _by_values(
        self, loader: ConfigLoaderImpl, name: str | None, typed: Sequence[Override], how: dict[str, Any]
    ) -> DictConfig:
        steering = tuple(_text(word) for word in typed if word.key_or_group in STEERING)
        if (name, steering) not in self._repositories:
            _, repository = loader._parse_overrides_and_create_caching_repo(name, list(steering))
            self._repositories[name, steering] = repository
        exists = self._repositories[name, steering].group_exists
        values = [word for word in typed if word.key_or_group not in STEERING and _is_value(word, exists)]
        options = tuple(_text(word) for word in typed if word not in values)
        asked = name, options, tuple(how.items())
        if asked not in self._composed:
            self._composed[asked] = pickle.dumps(self._compose(loader, name, list(options), **how))
        config: DictConfig = pickle.loads(self._composed[asked])
        loader._apply_overrides_to_config(values, config)
        return _with_what_was_typed(config, typed)


class RememberingLoader(ConfigLoaderImpl):
    """Hydra's loader, for a process that composes many configs, such as those of a sweep's jobs."""

    def __init__(self, loader: ConfigLoader):
        super().__init__(config_search_path=loader.get_search_path())
        self._compositions = Compositions(ConfigLoaderImpl._load_configuration_impl)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The sweep's own config: sweepers compose each job only to find mistakes, as planning the sweep does."""
        return master_config

    def load_job(self, master_config: DictConfig, overrides: list[str]) -> DictConfig:
        """The config of a job of this sweep, as ``load_sweep_config`` of Hydra's own loader composes it."""
        return super().load_sweep_config(master_config, overrides)

    def _load_configuration_impl(self, config_name: str | None, overrides: list[str], **how: Any) -> DictConfig:  # type: ignore[override]
        return self._compositions.compose(self, config_name, overrides, **how)


def _text(override: Override) -> str:
    return str(override.input_line)


def _is_value(override: Override, exists: Callable[[str], bool]) -> bool:
    """Whether it sets a value in the composed config, instead of choosing an option."""
    return isinstance(override.value(), dict) or not exists(override.key_or_group)


def _with_what_was_typed(config: DictConfig, typed: Sequence[Override]) -> DictConfig:
    """The config with Hydra's record of all overrides, including those that only set values."""
    ours = [override for override in typed if not override.is_hydra_override()]
    config.hydra.overrides.task = [override.input_line for override in ours]
    config.hydra.overrides.hydra = [override.input_line for override in typed if override.is_hydra_override()]
    if not OmegaConf.is_interpolation(config.hydra.job, "override_dirname"):  # as it is from Hydra 1.4 on
        form = config.hydra.job.config.override_dirname
        texts = sorted(_text(override) for override in ours if override.key_or_group not in form.exclude_keys)
        config.hydra.job.override_dirname = form.item_sep.join(texts).replace("=", form.kv_sep)
    return config
