"""What Hydra 1.3 and OmegaConf 2.3 call otherwise than Hydra 1.4 and OmegaConf 2.4, which come together."""

import re
from collections.abc import Callable
from inspect import signature
from typing import Any

import hydra
from omegaconf import OmegaConf

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import CONF

_FROM_1_4 = "execution_whitelist" in signature(hydra.main).parameters
# 1.3 behaves as earlier versions unless this is given, of which 1.4 warns.
VERSION_BASE: dict[str, Any] = {} if _FROM_1_4 else {"version_base": "1.3"}
# What Hydra itself creates, by this project's conf/; options are created by ``runner/option/locate.py``.
_CREATED = (
    *("manyheads.runner.config.fresh_folder.FreshFolder", "hydra_plugins.manyheads.*"),
    *("logging.*", "manyheads.runner.config.fresh_folder.LogFile"),
    *("optuna.samplers.*", "optuna.pruners.*", "manyheads.launchers.sweep.pruning.hyperband"),
)
_TARGET = re.compile(r"""_target_["']?\s*[:=]\s*["']?([\w.]+)""")
# A config in Hydra's store that stands for another one of its name: 1.4 asks for it to be said.
REPLACE: Any = {"replace": True} if _FROM_1_4 else {}
# OmegaConf 2.3 has a function of this name too, for resolvers of an earlier kind.
register_resolver: Callable[..., None] = OmegaConf.register_resolver if _FROM_1_4 else OmegaConf.register_new_resolver


def main(line: CommandLine, start: Callable[[Any], Any]) -> Callable[[], Any]:
    """``hydra.main`` over ``conf/``. Hydra creates what the project and the user name, as classes of callbacks."""
    files = (path for folder in line.folders[1:] for path in folder.rglob("*.yaml"))
    texts = (*line.overrides, *(path.read_text(errors="replace") for path in files)) if _FROM_1_4 else ()
    named = {name for text in texts if "hydra" in text for name in _TARGET.findall(text)}
    how = {"execution_whitelist": [*_CREATED, *named]} if _FROM_1_4 else VERSION_BASE
    return hydra.main(config_path=str(CONF), config_name="config", **how)(start)


def composing_from_conf() -> hydra.initialize_config_dir:
    """A context in which ``hydra.compose`` reads ``conf/``."""
    return hydra.initialize_config_dir(str(CONF), **VERSION_BASE)
