"""The context of a Hydra job, and its errors as a single paragraph."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.explain import explain, raised_by_hydra, refuse_without_package
from manyheads.runner.config.fresh_folder import as_typed
from manyheads.runner.config.lookup import OWN, Folders, no_such_option, options
from manyheads.runner.errors import ConfigurationError, Ended, ExitCode, RunFailed, lost_output, report
from manyheads.runner.run.run_folder import RunFolder

ERRORS_OF_HYDRA = (HydraException, OmegaConfBaseException)


@contextmanager
def explained(line: CommandLine) -> Iterator[None]:
    """Turns Hydra's complaint about a command line into a ConfigurationError that suggests the nearest options."""
    try:
        yield
    except (ConfigurationError, RunFailed, Ended):  # Hydra may reraise a job's error
        raise
    except Exception as error:
        if isinstance(error, ERRORS_OF_HYDRA) or raised_by_hydra(error):
            raise explain(error, line.folders) from error
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
    except OSError as error:
        if (lost := lost_output(error)) is None:
            raise
        raise Ended(ExitCode.FAILED, lost) from error


def in_sweep() -> bool:
    """Whether Hydra runs this job as part of a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def check_experiment(overrides: Any, folders: Folders = OWN) -> None:
    """Raises ConfigurationError for a missing experiment, which Hydra would silently skip even if the user named it.

    Also for one whose keys Hydra would set below ``experiment``. folders: where Hydra looks for it.
    """
    for override in as_typed(overrides):
        key, _, value = override.partition("=")
        if key.lstrip("+") == "experiment":
            for name in map(str.strip, value.strip("[]").split(",")):
                if name not in options("experiment", folders):
                    raise no_such_option("experiment", name, folders)
                refuse_without_package(name, folders)
