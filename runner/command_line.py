"""Hydra's command line with this project's manners: exit codes, one-paragraph errors, a fresh folder for each run."""

import os

os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors to command_line() instead of printing them

import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

from hydra._internal.utils import get_args_parser  # the only way to know which arguments are overrides
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write
from omegaconf.errors import OmegaConfBaseException

from runner.config import CONF, GROUPS, no_such_option, options, unknown_key
from runner.errors import ConfigurationError, Interrupted, RunFailed, Unavailable
from runner.ledger import Ledger
from runner.run_folder import RunFolder, fresh_folder
from runner.saved import with_saved_config

FRESH_FOLDER = "+hydra.callbacks.fresh_folder._target_=runner.command_line.FreshFolder"
NOT_OVER_SAVED = "experiment=... can't be laid over a saved config. Leave out --config-path, or set the single keys."
QUOTES = """Write combinations in quotes: 'hydra.launcher.exclude=["parallel=dp,precision=apex"]'."""
_ends: list[ConfigurationError | RunFailed | None] = []  # how each job of this process ended; None: well


def command_line(app: Callable[[], Any]) -> NoReturn:
    """Run a Hydra app and end the process: 0 done, 1 failed, 2 bad configuration, 130/143 interrupted."""
    if not {"-sc", "--shell-completion"} & set(sys.argv):
        sys.argv = with_saved_config(with_fresh_folder(sys.argv), home=CONF.parent)
    sys.exit(exit_code(app))


def with_fresh_folder(arguments: list[str]) -> list[str]:
    """The command line with the callback among its overrides, which must stand together for argparse."""
    overrides = get_args_parser().parse_known_args(arguments[1:])[0].overrides
    at = arguments.index(overrides[0], 1) if overrides else len(arguments)
    return [*arguments[:at], FRESH_FOLDER, *arguments[at:]]


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
    for override in _as_typed(overrides):
        key, _, value = override.partition("=")
        if key.lstrip("+") == "experiment":
            for name in value.strip("[]").split(","):
                if name.strip() not in options("experiment"):
                    raise ConfigurationError(no_such_option("experiment", name.strip()))


def report(error: ConfigurationError | RunFailed) -> None:
    """The rank's traceback, if there is one, and last, where it is seen, what happened."""
    if isinstance(error, RunFailed) and error.error["traceback"]:
        print(error.error["traceback"].rstrip(), file=sys.stderr)
    complain(str(error))


def complain(message: str) -> None:
    """Print an error the way that every command of this project does."""
    print(f"error: {message}", file=sys.stderr)


def _as_typed(overrides: Any) -> list[str]:
    """Overrides with their interpolations unresolved."""
    return cast(list[str], OmegaConf.to_container(overrides, resolve=False))


def refuse(message: str) -> NoReturn:
    """End the process from within a callback, whose ordinary exceptions Hydra turns into warnings."""
    complain(message)
    sys.exit(2)


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


class FreshFolder(Callback):
    """Gives every run a folder of its own, before Hydra writes anything into one.

    A folder that the user named and that holds a run already is refused; one that a clock named, in the same
    second as another, gets a new name.
    """

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        for override in _as_typed(config.hydra.overrides.hydra):
            if override.lstrip("+").startswith("hydra.launcher."):
                refuse(f"{override} is for sweeps, and this is a single run. Add -m, or leave it out.")
        self._settle(config, "run", lambda path: RunFolder(path).holds_run())

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self._settle(config, "sweep", _holds_sweep)

    @staticmethod
    def _settle(config: DictConfig, kind: str, is_taken: Callable[[Path], bool]) -> None:
        section = config.hydra[kind]
        path = Path(section.dir)
        named = any(override.startswith(f"hydra.{kind}.dir=") for override in _as_typed(config.hydra.overrides.hydra))
        try:
            if named and is_taken(path):
                refuse(f"hydra.{kind}.dir={path} holds a {kind} already. Name another folder, or leave it out.")
            if named:
                path.mkdir(parents=True, exist_ok=True)
            else:
                with read_write(config.hydra):
                    section.dir = str(fresh_folder(path))
        except OSError as error:
            refuse(f"hydra.{kind}.dir={path} can't be made: {error.strerror}. Name a folder that can.")


def _holds_sweep(path: Path) -> bool:
    """One that was refused before its first job leaves multirun.yaml alone."""
    if (path / "multirun.yaml").exists() and any(child.is_dir() for child in path.iterdir()):
        return True
    return Ledger(path).exists() or (path / "0").exists()
