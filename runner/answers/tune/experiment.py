"""Writes a configuration as an experiment that needs no other overrides: the user's own and those that tune found."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from manyheads.runner.answers.tune.race import Variant
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.lookup import forget, options
from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run import yaml_text
from manyheads.runner.run.data_files import read_text
from manyheads.runner.run.files import make_folder, remove, write_whole

GROUP = "experiment"
HEAD = "# @package _global_\n# Found by `manyheads tune`: "


def write(space: Space, variant: Variant, about: str, *, here: Path) -> Path:
    """Write ``conf/experiment/tuned_<name>.yaml`` in the project ``here``; return its path.

    ``about``: a line for its first comment. Raises ConfigurationError if an experiment cannot express the
    configuration.
    """
    run, line = space.run(variant), space.line
    content = _content(space.overrides(variant), run, line)
    conf = conf_of(here)
    folder = (conf or here / "conf") / GROUP
    if conf is None and not folder.resolve().is_relative_to(here.resolve()):  # a link in somebody else's folder
        raise ConfigurationError(f"{folder} points outside {here}.")
    make_folder(folder)
    path = _free(folder, f"tuned_{run.name or run.model.name}")
    write_whole(path, f"{HEAD}{about}\n{yaml_text.dump(content)}")
    forget()
    composed = run_config([f"{GROUP}={path.stem}"], line.without(line.overrides).searching(folder.parent), space.origin)
    if composed.written != run.written:
        remove(path)
        raise ConfigurationError("The overrides cannot be written as an experiment.")
    return path


def _free(folder: Path, name: str) -> Path:
    """The first path that is unused, or was written by a tuning."""
    for number in range(1, 100):
        path = folder / f"{name}{'' if number == 1 else f'_{number}'}.yaml"
        if not path.exists() or read_text(path).startswith(HEAD):
            return path
    raise ConfigurationError(f"{folder} holds a hundred experiments called {name}. Remove some.")


def _content(overrides: Sequence[str], run: RunConfig, line: CommandLine) -> Mapping[str, Any]:
    parser, groups = OverridesParser.create(), list[Any]()
    values: Any = {}
    included = next((override.partition("=")[2] for override in overrides if override.startswith(f"{GROUP}=")), None)
    if included is None and (default := f"{run.data.name}_quick") in options(GROUP, line.folders):
        included = default
    for override in map(parser.parse_override, overrides):
        key = override.key_or_group
        if key == GROUP or key.startswith("hydra."):
            continue
        if override.is_delete() or override.package is not None:
            raise ConfigurationError(f"{override.input_line}: an experiment cannot express this override.")
        if "." not in key and options(key, line.folders):
            groups.append({f"override /{key}": override.value()})
            continue
        *sections, name = key.split(".")
        section = values
        for inner in sections:
            section = section.setdefault(inner, {})
        section[name] = override.value()
    return {"defaults": [*([included] if included else []), *groups], **values}
