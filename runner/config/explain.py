"""Rewrites Hydra's errors as one paragraph that suggests the nearest options and keys."""

import re
import traceback

from hydra.errors import OverrideParseException

from manyheads.runner.config.lookup import NAMED, OWN, Folders, no_such_option, options, unknown_key
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import GROUPS

NOT_OVER_SAVED = (
    "experiment=... can't be applied to a saved config. Leave out --config-path, or set its keys one by one."
)
QUOTES = """Write combinations in quotes: 'hydra.launcher.exclude=["parallel=dp,precision=apex"]'."""


def raised_by_hydra(error: Exception) -> bool:
    """Whether Hydra raised an error, including the plain ValueErrors that it raises for some overrides."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].startswith("hydra.")


def explain(error: Exception, folders: Folders = OWN) -> str:
    """Hydra's message in one paragraph, with the nearest names of options and keys. folders: where it looked."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines)
    if isinstance(error, OverrideParseException):
        if error.override and error.override.startswith("hydra.launcher.exclude"):
            return f"{error.override}: {lines[0]}. {QUOTES}"
        return f"{error.override}: {lines[0]}. Overrides are written group=option or key=value."
    if found := re.search(r"Could not find '([^'/]+)/([^']+)'", text):
        group, name = found.groups()
        if group == "experiment" and name in options(group, folders):
            return NOT_OVER_SAVED
        if group in (*GROUPS, *NAMED, "experiment"):
            return no_such_option(group, name, folders)
    if found := re.search(r"Could not override '([^']+)'|Key '[^']+' is not in struct\s+full_key: (\S+)", text):
        key = found.group(1) or found.group(2)
        if key == "experiment":
            return NOT_OVER_SAVED
        if key.startswith("hydra."):
            section = key.rpartition(".")[0]
            return f"{key}: there is no such key. `{invocation.command('train')} --cfg hydra -p {section}` lists them."
        return f"{unknown_key(key, folders)} `{invocation.command('train')} --cfg job` lists them all."
    if found := re.search(r"Multiple values for ([^ ]+)\. To override a value use 'override \S+: ([^']+)'", text):
        group, name = found.groups()
        return f"+{group}={name}: {group} already has an option. Write {group}={name}, without the plus."
    if "Config group override must be" in text:
        return f"{text}: set each group to one of its options, which `{invocation.command('train')} --help` lists."
    return text
