"""Hydra's command line with this project's manners: exit codes, one-paragraph errors, a fresh folder for each run."""

import os

os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors to command_line() instead of printing them

import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.fresh_folder import as_typed, with_fresh_folder
from manyheads.runner.config.saved import with_saved_config
from manyheads.runner.config.schema import CONF, GROUPS, no_such_option, options, unknown_key
from manyheads.runner.run.errors import ConfigurationError, Interrupted, RunFailed, Unavailable, complain
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.guard import guarded

NOT_OVER_SAVED = "experiment=... can't be laid over a saved config. Leave out --config-path, or set the single keys."
QUOTES = """Write combinations in quotes: 'hydra.launcher.exclude=["parallel=dp,precision=apex"]'."""
_ends: list[ConfigurationError | RunFailed | None] = []  # how each job of this process ended; None: well


def command_line(app: Callable[[], Any]) -> NoReturn:
    """Run a Hydra app and end the process: 0 done, 1 failed, 2 bad configuration, 130/143 interrupted."""

    def start() -> None:
        if not {"-sc", "--shell-completion"} & set(sys.argv):
            arguments = guarded(sys.argv, home=CONF.parent)
            sys.argv = with_saved_config(with_fresh_folder(arguments), home=CONF.parent)
        app()

    sys.exit(exit_code(start))


def exit_code(app: Callable[[], Any]) -> int:
    """Call ``app``, print what went wrong, and say with which code the process should end."""
    try:
        app()
    except Interrupted as stop:
        print(f"\n{stop}", file=sys.stderr)
        return stop.exit_code
    except KeyboardInterrupt:
        return 130
    except (HydraException, OmegaConfBaseException) as error:
        if not any(_ends):
            complain(explain(error))
            return 2
    except yaml.YAMLError as error:
        complain(f"a config cannot be read: {' '.join(str(error).split())}.")
        return 2
    except (ConfigurationError, RunFailed) as error:
        if error not in _ends:
            report(error)
            return error.exit_code
    except Exception as error:
        if not _raised_by_hydra(error):
            traceback.print_exc()
            return 1
        complain(explain(error))
        return 2
    return _code_of_jobs()


def _code_of_jobs() -> int:
    """2 where there was nothing but mistakes; 1 where a job failed beside others that ran."""
    codes = {failure.exit_code for failure in _ends if failure is not None}
    return 1 if len(codes) > 1 or (codes and None in _ends) else next(iter(codes), 0)


def _raised_by_hydra(error: Exception) -> bool:
    """Some mistakes in overrides end in a plain ValueError of Hydra's."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].startswith("hydra.")


@contextmanager
def job() -> Iterator[RunFolder]:
    """The run's folder. Its failure is reported where it happens; a sweep also hears of it, a single run just ends."""
    folder = RunFolder(HydraConfig.get().runtime.output_dir)
    try:
        with reported():
            yield folder
    except (ConfigurationError, RunFailed):
        if in_sweep():
            raise
        folder.clear_refused()


def in_sweep() -> bool:
    """Whether Hydra runs this job as one of a sweep's."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


@contextmanager
def reported(*, skips: bool = False) -> Iterator[None]:
    """Print the failure of a job, and remember it for the exit code. ``skips``: what is not there is no failure."""
    try:
        yield
    except (ConfigurationError, RunFailed) as error:
        if not (skips and isinstance(error, Unavailable)):
            note(error)
            report(error)
        raise
    note(None)


def note(failure: ConfigurationError | RunFailed | None) -> None:
    """How one job of this process ended, for the exit code."""
    _ends.append(failure)


def check_experiment(overrides: Any) -> None:
    """Hydra silently leaves out an optional option that it can't find, even one that the user named."""
    for override in as_typed(overrides):
        key, _, value = override.partition("=")
        if key.lstrip("+") == "experiment":
            for name in value.strip("[]").split(","):
                if name.strip() not in options("experiment"):
                    raise ConfigurationError(no_such_option("experiment", name.strip()))


def report(error: ConfigurationError | RunFailed) -> None:
    """The rank's traceback, if there is one, and last, where it is seen, what happened."""
    if isinstance(error, RunFailed) and error.failure.traceback:
        print(error.failure.traceback.rstrip(), file=sys.stderr)
    complain(str(error))


def explain(error: Exception) -> str:
    """Hydra's message in one paragraph, with the nearest names of options and keys."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines)
    if isinstance(error, OverrideParseException):
        if error.override and error.override.startswith("hydra.launcher.exclude"):
            return f"{error.override}: {lines[0]}. {QUOTES}"
        return f"{error.override}: {lines[0]}. Overrides are written group=option or key=value."
    if found := re.search(r"Could not find '([^'/]+)/([^']+)'", text):
        group, name = found.groups()
        if group == "experiment" and name in options(group):
            return NOT_OVER_SAVED
        if group in (*GROUPS, "experiment"):
            return no_such_option(group, name)
    if found := re.search(r"Could not override '([^']+)'|Key '[^']+' is not in struct\s+full_key: (\S+)", text):
        key = found.group(1) or found.group(2)
        if key == "experiment":
            return NOT_OVER_SAVED
        if key.startswith("hydra."):
            return f"{key}: there is no such key. `python run.py --cfg hydra -p {key.rpartition('.')[0]}` lists them."
        return f"{unknown_key(key)} `python run.py --cfg job` lists them all."
    if found := re.search(r"Multiple values for ([^ ]+)\. To override a value use 'override \S+: ([^']+)'", text):
        group, name = found.groups()
        return f"+{group}={name}: {group} has an option already. Write {group}={name}, without the plus."
    if "Config group override must be" in text:
        return f"{text}: set each group to one of its options, which `python run.py --help` lists."
    return text
