"""Hydra with a memory: each choice of options in conf/ is composed once in a process, at a tenth of a second each.

Values are set in a copy by Hydra itself. A config that was saved, and one with options of others than conf/ and Hydra
(a folder of the user's own, a typed file), is composed anew each time; the same text of YAML is parsed once.
"""

import io
import os
import pickle
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig, ListConfig, OmegaConf

from manyheads.runner.config.lookup import CONF

KNOWN = {"pkg://hydra.conf", str(CONF), f"file://{CONF}", "structured://"}
STEERS = {"hydra.searchpath", "hydra.job.env_copy"}  # keys that Hydra looks at while it composes
_compose = ConfigLoaderImpl._load_configuration_impl
_load = OmegaConf.load
_remembered: dict[Any, bytes] = {}
_parsed: dict[str, Any] = {}


def composed(*overrides: str) -> DictConfig:
    """What Hydra hands to ``python run.py <overrides>``, to be changed at will."""
    with initialize_config_dir(str(CONF), job_name="train", version_base="1.3"):
        return compose("config", list(overrides))


def remember() -> None:
    """Give this process's Hydra its memory."""
    ConfigLoaderImpl._load_configuration_impl = _compose_or_remember  # type: ignore[method-assign]
    OmegaConf.load = staticmethod(_load_or_remember)  # type: ignore[method-assign]


def _load_or_remember(file: Any) -> DictConfig | ListConfig:
    if not isinstance(file, io.TextIOBase):
        return _load(file)
    text = file.read()
    if text not in _parsed:
        _parsed[text] = OmegaConf.to_container(_load(io.StringIO(text)))
    return OmegaConf.create(_parsed[text])


def _compose_or_remember(loader: ConfigLoaderImpl, config_name: str, overrides: list[str], **how: Any) -> DictConfig:
    typed = OverridesParser.create().parse_overrides(overrides)
    sources = {source.path for source in loader.config_search_path.get_path()}
    others = not sources <= KNOWN or any(map(_is_group, ConfigStore.instance().repo))
    steered = any(each.is_sweep_override() or each.key_or_group in STEERS for each in typed)
    if config_name != "config" or others or steered:
        return _compose(loader, config_name, overrides, **how)
    values = [each for each in typed if not _is_group(each.key_or_group)]
    options = [str(each.input_line) for each in typed if each not in values]
    key = (*options, JobRuntime.instance().get("name"))
    if key not in _remembered:
        _remembered[key] = pickle.dumps(_compose(loader, config_name, options, **how))
    config = pickle.loads(_remembered[key])
    loader._apply_overrides_to_config(values, config)
    return _with_what_was_typed(config, typed)


def _is_group(key: str) -> bool:
    return key.startswith("hydra/") or (CONF / key).is_dir()


def _with_what_was_typed(config: DictConfig, typed: list[Override]) -> DictConfig:
    """With Hydra's notes on the command line, which end what it does to compose."""
    ours = [each for each in typed if not each.is_hydra_override()]
    config.hydra.overrides.task = [each.input_line for each in ours]
    config.hydra.overrides.hydra = [each.input_line for each in typed if each not in ours]
    config.hydra.runtime.cwd = os.getcwd()
    how = config.hydra.job.config.override_dirname
    config.hydra.job.override_dirname = get_overrides_dirname(
        ours, kv_sep=how.kv_sep, item_sep=how.item_sep, exclude_keys=how.exclude_keys
    )
    return config
