"""Exit codes, and the one handler that prints every command's error, as a single paragraph."""

import errno
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.explain import explain, raised_by_hydra
from manyheads.runner.config.fresh_folder import as_typed
from manyheads.runner.config.lookup import OWN, Folders, no_such_option, options
from manyheads.runner.errors import ConfigurationError, Ended, Interrupted, RunFailed, complain, report
from manyheads.runner.run import yaml_text
from manyheads.runner.run.files import FAILED, FULL
from manyheads.runner.run.run_folder import RunFolder

ERRORS_OF_HYDRA = (HydraException, OmegaConfBaseException)


def exit_code(app: Callable[[], Any]) -> int:
    """Call ``app``, print its error if it fails, and return the exit code of the process.

    0 for success, or what ``app`` returns; 1 failed, 2 configuration error, 130 or 143 interrupted.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it announces its font cache, and temporary folders
    try:
        return app() or 0
    except Ended as end:
        return end.exit_code if end.error is None else _printed(end.error)
    except Interrupted as stop:
        print(f"\n{stop}", file=sys.stderr)
        return stop.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _printed(error)


def _printed(error: Exception) -> int:
    """Print the error, and return its exit code."""
    if isinstance(error, (ConfigurationError, RunFailed)):
        report(error)
        return error.exit_code
    if isinstance(error, OSError) and error.errno in (*FULL, *FAILED, errno.EACCES, errno.EPERM) and error.filename:
        complain(f"{error.filename}: {error.strerror}")  # the disk's fault, in which a traceback leads nowhere
        return 1
    if isinstance(error, yaml_text.Error):
        complain(f"a config cannot be read: {' '.join(str(error).split())}.")
    elif isinstance(error, ERRORS_OF_HYDRA) or raised_by_hydra(error):
        complain(explain(error))
    else:
        traceback.print_exception(error)
        return 1
    return 2


@contextmanager
def explained(line: CommandLine) -> Iterator[None]:
    """Turns Hydra's complaint about a command line into a ConfigurationError that suggests the nearest options."""
    try:
        yield
    except (ConfigurationError, RunFailed, Ended):  # Hydra may reraise a job's error
        raise
    except Exception as error:
        if isinstance(error, ERRORS_OF_HYDRA) or raised_by_hydra(error):
            raise ConfigurationError(explain(error, line.folders)) from error
        raise


@contextmanager
def job() -> Iterator[RunFolder]:
    """The run's folder. Prints a failure in a sweep at once, since Hydra collects them and raises only the first."""
    folder = RunFolder(HydraConfig.get().runtime.output_dir)
    try:
        yield folder
    except (ConfigurationError, RunFailed) as error:
        if in_sweep():
            report(error)
            raise
        folder.clear_refused()
        raise Ended(error.exit_code, error) from error


def in_sweep() -> bool:
    """Whether Hydra runs this job as part of a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def check_experiment(overrides: Any, folders: Folders = OWN) -> None:
    """Raises ConfigurationError for a missing experiment, which Hydra would silently skip even if the user named it.

    folders: where Hydra looks for it.
    """
    for override in as_typed(overrides):
        key, _, value = override.partition("=")
        if key.lstrip("+") == "experiment":
            for name in value.strip("[]").split(","):
                if name.strip() not in options("experiment", folders):
                    raise ConfigurationError(no_such_option("experiment", name.strip(), folders))
