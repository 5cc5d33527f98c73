"""A run or a sweep to go on with: its folder may come from anybody, and nothing in it is touched before it is seen."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.schema import check
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_sealed_here
from manyheads.runner.trust.check import plain, refuse_untrusted
from manyheads.runner.trust.packages import Trust, trusted_packages


def refuse_untrusted_run(folder: RunFolder, packages: Sequence[str] = ()) -> None:
    """Raises ConfigurationError for a run that the user neither recorded here nor trusts. packages: typed ones."""
    if folder.config.exists() and not is_sealed_here(folder.config):
        _refuse_links(folder.path)
        _refuse_config(folder, Trust(trusted_packages(packages)))


def refuse_untrusted_jobs(sweep: Path, folders: Sequence[str], packages: Sequence[str] = ()) -> None:
    """The same for the jobs of a sweep, in folders that its ledger names: all of them, before the first one starts."""
    jobs = [RunFolder(sweep / folder) for folder in folders]
    foreign = [job for job in jobs if not is_sealed_here(job.config)]
    foreign = [job for job in foreign if job.config.exists() or not _is_recorded(job, sweep)]
    if not foreign:
        return
    _refuse_links(sweep)
    trust = Trust(trusted_packages(packages))
    for job in foreign:
        if not _is_inside(job, sweep):
            raise ConfigurationError(f"{sweep} is not from here, and its ledger names a job outside of it: {job.path}.")
        _refuse_config(job, trust)


def _is_recorded(job: RunFolder, sweep: Path) -> bool:
    """Whether the user's own sweep had this job, which was refused before it was frozen."""
    return _is_inside(job, sweep) and is_sealed_here(job.composed)


def _is_inside(job: RunFolder, sweep: Path) -> bool:
    return job.path.resolve().is_relative_to(sweep.resolve())


def _refuse_config(folder: RunFolder, trust: Trust) -> None:
    """Ranks read run.yaml as it is; without one, a run will be frozen from what Hydra composed."""
    if folder.config.exists():
        config = folder.read_config()
        refuse_untrusted(config, trust)
        check(OmegaConf.create(config))  # going on with a run does not look at its values again
    elif folder.composed.exists():
        composed = OmegaConf.load(folder.composed)
        if isinstance(composed, DictConfig):
            refuse_untrusted(plain(composed), trust)  # before it is completed, which imports what options declare
            with suppress(_Wrong):  # freezing it will say so, if it is still wrong
                refuse_untrusted(_checked(composed), trust)


class _Wrong(Exception):
    """A config that can't be frozen."""


def _checked(composed: DictConfig) -> dict:
    try:
        return check(composed)
    except ConfigurationError as error:
        raise _Wrong from error


def _refuse_links(folder: Path) -> None:
    """Writing into somebody else's folder must not be writing anywhere else."""
    inside = folder.resolve()
    for parent, names, files in os.walk(folder):
        for path in (Path(parent) / name for name in (*names, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise ConfigurationError(f"{path} leads out of {folder}, which is not from here. Remove that link.")
