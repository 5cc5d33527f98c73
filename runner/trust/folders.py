"""A run or a sweep to go on with: its folder may come from anybody, and nothing in it is touched before it is seen."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from manyheads.runner.config.schema import check
from manyheads.runner.run.data_files import refuse_links
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_sealed_here
from manyheads.runner.trust.check import plain, refuse_untrusted
from manyheads.runner.trust.config_files import read_config_file, refuse_content
from manyheads.runner.trust.packages import Trust, trusted_packages


def refuse_untrusted_run(folder: RunFolder, packages: Sequence[str] = ()) -> None:
    """Raises ConfigurationError for a run that the user neither recorded nor trusts. packages: typed ones."""
    refuse_links(folder.path)
    if folder.config.exists():
        folder.pin_config()
    if folder.config.exists() and not folder.is_own():
        _refuse_config(folder, Trust(trusted_packages(packages), place=folder.path))


def refuse_untrusted_jobs(sweep: Path, folders: Sequence[str], packages: Sequence[str] = ()) -> None:
    """The same for the jobs of a sweep, in folders that its ledger names: all of them, before the first one starts."""
    refuse_links(sweep)
    for job in (RunFolder(sweep / folder) for folder in folders):
        if not job.path.is_relative_to(sweep.resolve()):
            raise ConfigurationError(
                f"the ledger of {sweep} names a job outside of it: {job.path}. Resume that one by itself."
            )
        if (trust := trust_in_job(job, sweep, packages)) is not None:
            _refuse_config(job, trust)


def trust_in_job(job: RunFolder, sweep: Path, packages: Sequence[str] = ()) -> Trust | None:
    """What the user trusts of a job's config, as it is frozen or else composed; None: it is his own."""
    if job.is_own() or (not job.config.exists() and is_sealed_here(job.composed)):
        return None
    return Trust(trusted_packages(packages), place=sweep)


def _refuse_config(folder: RunFolder, trust: Trust) -> None:
    """Ranks read run.yaml as it is; without one, a run will be frozen from what Hydra composed."""
    if folder.config.exists():
        config = folder.read_config()
        refuse_content(folder.config, config)
        refuse_untrusted(config, trust)
        check(OmegaConf.create(config))  # going on with a run does not look at its values again
    elif folder.composed.exists():
        composed = read_config_file(folder.composed).content
        refuse_content(folder.composed, composed)
        if isinstance(composed, dict):  # before it is completed, which imports what options declare
            refuse_untrusted(plain(OmegaConf.create(composed)), trust)  # freezing it looks at it again
