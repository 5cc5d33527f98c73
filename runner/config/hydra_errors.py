"""Hydra's errors in one paragraph, with the nearest options and keys, and a mistake that Hydra would not report."""

import platform
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.code_files import KIND
from manyheads.runner.config.code_files import NAMED as NAMED_CLASS
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import as_typed
from manyheads.runner.config.lookup import (
    NAMED,
    OWN,
    Folders,
    keys_beside,
    no_such_option,
    options,
    owners,
    package_of,
    read,
    unknown_key,
)
from manyheads.runner.config.quoting import remedy
from manyheads.runner.errors import ConfigurationError, Ended, RunFailed, UnknownName
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import leaves

ERRORS_OF_HYDRA = (HydraException, OmegaConfBaseException)


@contextmanager
def explained(line: CommandLine) -> Iterator[None]:
    """Turns Hydra's complaint about a command line into a ConfigurationError that suggests the nearest options."""
    try:
        yield
    except (ConfigurationError, RunFailed, Ended):  # Hydra may reraise a job's error
        raise
    except Exception as error:
        if isinstance(error.__cause__, ConfigurationError):  # about a log's file, wrapped by logging
            raise error.__cause__ from None
        if isinstance(error, ERRORS_OF_HYDRA) or raised_by_hydra(error):
            raise explain(error, line.folders, line.overrides) from error
        raise


MISSING = "???"  # OmegaConf's word for a value that is still to be set


def check_experiment(overrides: Any, folders: Folders = OWN) -> None:
    """Raises ConfigurationError for a missing experiment, which Hydra would silently skip even if the user named it.

    Also for one whose keys Hydra would set below ``experiment``. folders: where Hydra looks for it.
    """
    for override in as_typed(overrides):
        key, _, value = override.partition("=")
        if key.lstrip("+") == "experiment":
            names = [*map(str.strip, value.strip("[]").split(","))]
            for name in names:
                if name not in options("experiment", folders):
                    raise no_such_option("experiment", name, folders)
                refuse_without_package(name, folders)
            _refuse_unset(names, CommandLine(tuple(as_typed(overrides))), folders)


def _refuse_unset(names: Sequence[str], line: CommandLine, folders: Folders) -> None:
    """Raises ConfigurationError for a key that an experiment leaves to be set, and for which Hydra takes a default."""
    places = [folder / "experiment" / f"{name}.yaml" for name in names for folder in folders]
    pairs = (pair for path in places if path.is_file() for pair in leaves(read(path)))
    values = [(key, value) for key, value in pairs if not key.startswith("defaults")]
    given = {key for key, value in values if value != MISSING} | line.chosen
    for key in (key for key, value in values if value == MISSING and key not in given):
        message = f"{key} is {MISSING} in experiment={','.join(names)}, to be set for each run. Set it: {key}=<value>."
        raise ConfigurationError(message, key=key)


NOT_OVER_SAVED = (
    "experiment=... can't be applied to a saved config. Leave out --config-path, or set its keys one by one."
)
_NO_SUCH_KEY = re.compile(
    r"Could not override '([^']+)'|No earlier Group Default for '([^']+)'"
    r"|Key '[^']+' is not in struct\s+full_key: (\S+)"
)
QUOTES = """Write combinations in quotes: 'hydra.launcher.exclude=["parallel=dp,precision=apex"]'."""


def raised_by_hydra(error: Exception) -> bool:
    """Whether Hydra raised an error, including the plain ValueErrors that it raises for some overrides.

    Errors of the system, such as a full disk, are no fault of the config although Hydra was writing.
    """
    if isinstance(error, OSError):
        return False
    if broken_plugin(error) is not None:
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].startswith("hydra.")


def explain(error: Exception, folders: Folders = OWN, overrides: Sequence[str] = ()) -> ConfigurationError:
    """The error with Hydra's message in one paragraph, and the nearest names of options and keys.

    ``folders``: where Hydra looked for configs; ``overrides``: what it composed. Raises ConfigurationError as
    ``refuse_without_package`` does.
    """
    if (plugin := broken_plugin(error)) is not None:
        return plugin
    written = [line for line in str(error).splitlines() if not line.startswith("Error when parsing index: ")]
    lines = [line.strip() for line in written if line.strip()]
    text = " ".join(lines)
    if isinstance(error, OverrideParseException):
        if error.override and error.override.startswith("hydra.launcher.exclude"):
            return ConfigurationError(f"{error.override}: {lines[0]}. {QUOTES}", key="hydra.launcher.exclude")
        return _unreadable(str(error.override), written)
    if match := re.search(r"Could not (?:find|load) '([^'/]+)/([^']+)'", text):
        group, name = match.groups()
        if group == "experiment" and name in options(group, folders):
            return ConfigurationError(NOT_OVER_SAVED, key=group, value=name)
        if group in (*GROUPS, *NAMED, "experiment"):
            return no_such_option(group, name, folders)
    if match := _NO_SUCH_KEY.search(text):
        return _of_key(next(filter(None, match.groups())), text, folders, overrides)
    if match := re.search(r"Could not append to config\. An item is already at '([^']+)'.*: '\+(\+[^=]+=.*)'$", text):
        key, typed = match.groups()
        message = f"{typed}: {key} is already set. Write +{typed}, which sets a key whether or not it is already set."
        return ConfigurationError(message, key=key, value=typed.partition("=")[2])
    if match := re.search(r"Multiple values for ([^ ]+)\. To override a value use 'override \S+: ([^']+)'", text):
        group, name = match.groups()
        message = f"+{group}={name}: {group} already has an option. Write {group}={name}, without the plus."
        return ConfigurationError(message, key=group, value=name)
    if "Config group override must be" in text:
        listing = f"`{invocation.command('train')} --help` lists"
        none = f"{' and '.join(f'{group}=[]' for group in NAMED)} leave out all entries"
        return ConfigurationError(f"{text}: set each group to one of its options, which {listing}; {none}.")
    if isinstance(cause := error.__cause__, OmegaConfBaseException):  # Hydra prints it below its own message
        text = f"{text.removesuffix('.')}: {str(cause).partition(chr(10))[0].removesuffix('.')}."
    return ConfigurationError(text)


def _unreadable(override: str, lines: list[str]) -> ConfigurationError:
    """The error about an override that Hydra cannot parse. ``lines``: Hydra's message."""
    reason, *rest = lines
    where = ""
    if reason.startswith("LexerNoViableAltException") and rest[0].endswith("^"):
        at = len(rest[0]) - len(reason) + len(override) - 1
        reason, where = f"Hydra cannot read {override[at : at + 1]!r}", f"\n{override}\n{'^':>{at + 1}}"
    elif reason.startswith("Error parsing override"):
        reason = rest[0]
    message = f"{override}: {reason.strip().removesuffix('.')}. Overrides are written group=option or key=value."
    return ConfigurationError(f"{message}{remedy(override)}{where}", key=override.partition("=")[0] or None)


def _of_key(key: str, text: str, folders: Folders, overrides: Sequence[str]) -> ConfigurationError:
    """The error about a key that does not exist. ``text``: Hydra's message. Raises as ``explain`` does."""
    group, typed = key.partition(".")[0], [override for override in overrides if override.partition("=")[0] == key]
    if typed and any(re.match(rf"{group}=({KIND}$|.*{NAMED_CLASS}'?$)", override) for override in overrides):
        message = f"{typed[0]}: {group} has no such key yet. Write +{typed[0]}, which passes it to your class."
        return UnknownName(message, key=key)
    if "@experiment." in key and (experiment := re.search(r"In 'experiment/([^']+)'", text)):
        refuse_without_package(experiment[1], folders)
    if key == "experiment":
        return ConfigurationError(NOT_OVER_SAVED, key=key)
    if key.startswith("hydra."):
        section = key.rpartition(".")[0]
        listing = f"`{invocation.command('train')} --cfg hydra -p {section}` lists them."
        return UnknownName(f"{key}: there is no such key. {listing}", key=key)
    if option_names := owners(key, folders):
        message = f"{unknown_key(key, folders)} Leave it out with any other option."
        return UnknownName(message, key=key, allowed=option_names)
    listing = f"`{invocation.command('train')} --cfg job` lists them all."
    return UnknownName(f"{unknown_key(key, folders)} {listing}", key=key, allowed=keys_beside(key, folders))


def refuse_without_package(name: str, folders: Folders) -> None:
    """Raises ConfigurationError for an experiment whose keys Hydra sets below ``experiment``."""
    path = next(path for folder in folders if (path := folder / "experiment" / f"{name}.yaml").is_file())
    text = path.read_text()
    if package_of(text) is not None or not set(read(path)) - {"defaults"}:
        return
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.match(r"\s*#\s*@package\b", line)]
    how = f"stands in line {lines[0]}, where Hydra doesn't read it. Move it" if lines else "is missing. Write it"
    raise ConfigurationError.at("experiment", name, f": # @package _global_ {how} above all other lines of {path}.")


def broken_plugin(error: Exception) -> ConfigurationError | None:
    """The error about the plugin whose import failed; None for all other errors.

    Hydra itself goes on without a plugin that raises ImportError, which it reports in a warning.
    """
    from importlib.metadata import distributions  # slow, and hardly ever needed

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    scans = [frame for frame in frames if frame.f_globals.get("__name__") == "hydra.core.plugins"]
    module = next((str(frame.f_locals["modname"]) for frame in scans if "modname" in frame.f_locals), None)
    if module is None:
        return None
    where, python = module.replace(".", "/"), platform.python_version()
    files = ((package, str(file)) for package in distributions() for file in package.files or ())
    owner = next((package for package, file in files if file in (f"{where}.py", f"{where}/__init__.py")), None)
    name = f"{owner.name} {owner.version}" if owner else module
    reason = f"{type(error).__name__}: {error}".rstrip(".")
    return ConfigurationError(
        f"the Hydra plugin {name} cannot be imported with Python {python}: {reason}. Uninstall it, or install another "
        "version."
    )


def refuse_hydra(overrides: Iterable[Override], *, because: str) -> None:
    """Raises ConfigurationError for a key of Hydra's own. ``because``: why the command has none, as a sentence."""
    for override in overrides:
        if override.key_or_group.partition(".")[0].partition("/")[0] == "hydra":
            message = f"{override.input_line}: {because}. Leave it out."
            raise ConfigurationError(message, key=override.key_or_group, value=override.value())
