"""What a config from others may set of Hydra's own section, which starts callbacks, launchers, loggers and more.

Whatever differs from Hydra's own configs must be in a short list of what does no harm, or be typed.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.run.errors import ConfigurationError

Path = tuple[str, ...]
SEARCHPATH = "hydra.searchpath"
OWN_LAUNCHER = "hydra_plugins.manyheads.launcher.Manyheads"
LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")
# Where folders and texts come from, and what Hydra notes there itself.
FREE = re.compile(
    r"run\.dir|sweep\.(dir|subdir)|mode|verbose(\..*)?|(help|hydra_help)\..*|searchpath\..*"
    r"|job\.(override_dirname|config_name|id|num|config\.override_dirname\..*)"
    r"|runtime\.(version|version_base|cwd|config_sources\..*|choices\..*)|overrides\.(task|hydra)\..*"
)
MAGIC = ("_target_", "_args_", "_partial_", "_recursive_", "_convert_")


def refused_keys(composed: DictConfig, typed: list[str]) -> list[tuple[str, Any]]:
    """Keys of the composed ``hydra`` with their values that could run code, or write where they should not.

    typed: the user's own overrides of Hydra's configuration. Raises ConfigurationError for options that Hydra lacks.
    """
    hydra: Any = OmegaConf.to_container(composed.hydra, resolve=False)
    own = dict(leaves(_as_hydra_has_it(hydra["runtime"]["choices"], typed)))
    is_own_launcher = own.get(("launcher", "_target_")) == OWN_LAUNCHER
    return [
        (f"hydra.{'.'.join(path)}", value)
        for path, value in leaves(hydra)
        if not (path in own and own[path] == value) and not _is_free(path, value, is_own_launcher)
    ]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All values that are neither mappings nor lists, each with where it is."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path, value
    else:
        for key, item in items:
            yield from leaves(item, (*path, str(key)))


def _as_hydra_has_it(choices: dict[str, Any], typed: list[str]) -> Any:
    """Its section with the same options chosen and the same keys typed, without any file of the config's folder."""
    chosen = [f"{group}={name}" for group, name in choices.items() if "hydra/" in group and name is not None]
    try:
        loader = ConfigLoaderImpl(create_config_search_path(None))
        config = loader.load_configuration(
            None, [*chosen, *typed], RunMode.MULTIRUN, from_shell=False, validate_sweep_overrides=False
        )
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(
            "this config is not from here, and chooses something of Hydra's that Hydra itself does not have: "
            f"{' '.join(str(error).split())}."
        ) from None
    return OmegaConf.to_container(config.hydra, resolve=False)


def _is_free(path: Path, value: Any, is_own_launcher: bool) -> bool:
    key, is_plain = ".".join(path), value is None or isinstance(value, (bool, int, float))
    if path[-1] in MAGIC:
        return False
    rules: dict[str, Callable[[], bool]] = {
        "launcher": lambda: is_plain or is_own_launcher,
        "sweeper": lambda: is_plain or path[1] == "params" or value in ("minimize", "maximize"),
        "hydra_logging": lambda: path[-1] == "level" and value in LEVELS,
        "job_logging": lambda: path[-1] == "level" and value in LEVELS,
    }
    if len(path) > 1 and path[0] in rules and rules[path[0]]():
        return True
    return bool(FREE.fullmatch(key)) or (key, value) == ("job.chdir", False)
