"""Hydra's command line with this project's manners: exit codes, one-paragraph errors, a fresh folder for each run."""

import os

os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors to command_line() instead of printing them

import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, read_write
from omegaconf.errors import OmegaConfBaseException

from runner.config import GROUPS, known_keys, nearest, no_such_option
from runner.errors import ConfigurationError, Interrupted, RunFailed
from runner.run_folder import RunFolder

FRESH_FOLDER = "+hydra.callbacks.fresh_folder._target_=runner.command_line.FreshFolder"
_failures: list[Exception] = []


def command_line(app: Callable[[], Any]) -> NoReturn:
    """Run a Hydra app and end the process: 0 done, 1 failed, 2 bad configuration, 130/143 interrupted."""
    if not {"-sc", "--shell-completion"} & set(sys.argv):
        sys.argv.append(FRESH_FOLDER)  # not in conf/: a saved config that is run again has lost that section
    sys.exit(exit_code(app))


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
        if not _failures:
            complain(explain(error))
            return 2
    except (ConfigurationError, RunFailed) as error:
        if error not in _failures:
            complain(str(error))
            return error.exit_code
    except Exception:
        traceback.print_exc()
        return 1
    if not _failures:
        return 0
    return getattr(_failures[0], "exit_code", 1) if len(_failures) == 1 else 1


@contextmanager
def job() -> Iterator[None]:
    """Report the failure of one run where it happens; a sweep also hears of it, a single run just ends."""
    try:
        yield
    except (ConfigurationError, RunFailed) as error:
        _failures.append(error)
        complain(str(error))
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise


def complain(message: str) -> None:
    """Print an error the way that every command of this project does."""
    print(f"error: {message}", file=sys.stderr)


def explain(error: Exception) -> str:
    """Hydra's message in one paragraph, with the nearest names of options and keys."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines)
    if found := re.search(r"Could not find '([^']+)'|no match for '([^']+)'", text):
        group, _, name = (found.group(1) or found.group(2)).rpartition("/")
        if group in (*GROUPS, "experiment"):
            return no_such_option(group, name)
    if found := re.search(r"Could not override '([^']+)'|Key '[^']+' is not in struct\s+full_key: (\S+)", text):
        key = found.group(1) or found.group(2)
        hint = nearest(key, known_keys())
        return f"{key} is not a key of the run config.{hint} `python run.py --cfg job` lists them all."
    if "is not a valid" in text or "mismatched input" in text or "extraneous input" in text:
        return f"{text} (overrides are written group=option or key=value)"
    return text


class FreshFolder(Callback):
    """Gives every run a folder of its own, before Hydra writes anything into one.

    A folder that the user named and that holds a run already is refused; one that a clock named, in the same
    second as another, gets a new name.
    """

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        self._settle(config, "run", lambda path: RunFolder(path).holds_run())

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self._settle(config, "sweep", lambda path: (path / "multirun.yaml").exists() or (path / "0").exists())

    @staticmethod
    def _settle(config: DictConfig, kind: str, is_taken: Callable[[Path], bool]) -> None:
        section = config.hydra[kind]
        path = Path(section.dir)
        if any(override.startswith(f"hydra.{kind}.dir=") for override in config.hydra.overrides.hydra):
            if is_taken(path):
                complain(f"hydra.{kind}.dir={path} holds a {kind} already. Name another folder, or leave it out.")
                sys.exit(2)  # Hydra turns a callback's ordinary exceptions into warnings
            return
        with read_write(config.hydra):
            section.dir = str(_reserve(path))


def _reserve(path: Path) -> Path:
    """Make ``path``, or the first of path_2, path_3, ... that nobody else has made."""
    candidate, number = path, 1
    while True:
        try:
            candidate.mkdir(parents=True)
            return candidate
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.name}_{number}")
