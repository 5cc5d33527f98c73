"""All jobs of a sweep, composed and frozen before the first one starts, so that later edits do not affect them."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import filter_overrides
from omegaconf import DictConfig, open_dict, read_write

from manyheads.launchers.sweep.sweep_options import Options, combinations, excluded_by, written
from manyheads.runner.config.composing import RememberingLoader
from manyheads.runner.config.freeze import checked
from manyheads.runner.config.fresh_folder import guard_logs, save_composed, without_links
from manyheads.runner.config.hydra_errors import check_experiment
from manyheads.runner.config.lookup import searched
from manyheads.runner.config.origin import Origin
from manyheads.runner.config.schema import is_run_config
from manyheads.runner.errors import ConfigurationError, Unavailable, WrongValue, report
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.provenance import signature
from manyheads.runner.run import seal
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder

MOST_BYTES = 255  # of a file's name, on all common disks


@dataclass(frozen=True)
class PlannedJob:
    """One job, or one repeat of it.

    ``excluded``: the combination that excludes it; ``error``: why it was refused; ``run``: the config to freeze.
    """

    entry: Entry
    config: DictConfig
    folder: RunFolder
    excluded: str = ""
    error: ConfigurationError | None = None
    run: RunConfig | None = None


def compose(
    loader: RememberingLoader,
    config: DictConfig,
    batch: Sequence[Sequence[str]],
    first: int,
    options: Options,
    origin: Origin,
) -> Iterator[PlannedJob]:
    """Compose one entry for each repeat of each job, without writing anything.

    Raises ConfigurationError for a wrong ``exclude``, and for a config that the user does not trust.
    """
    excluded = combinations(options.exclude)
    for job, chosen in enumerate(batch, first):
        overrides = [readable(override) for override in chosen]
        for repeat in range(1, options.repeat + 1):
            composed = loader.load_job(config, overrides)
            origin.admit(composed)
            if repeat > 1 and options.repeat_seed == "vary" and "seed" in composed:
                composed = loader.load_job(config, [*overrides, f"seed={composed.seed + repeat - 1}"])
            folder = _place(composed, job, repeat)
            name = Ledger(str(config.hydra.sweep.dir)).name_of(folder.path)
            by = excluded_by(composed, excluded)
            yield PlannedJob(
                Entry(job, name, list(filter_overrides(overrides)), repeat),
                composed,
                folder,
                excluded=written(by or {}),
            )


def readable(override: str) -> str:
    """An override without the backslashes that Hydra's sweepers put before colons; only braces need them."""
    return override if re.search(r"[{'\"]", override) else override.replace(r"\:", ":")


def _place(composed: DictConfig, job: int, repeat: int) -> RunFolder:
    """Set the job's number and folder in its config, where ``hydra.core.utils.run_job`` will find them."""
    with open_dict(composed.hydra.job):
        composed.hydra.job.id, composed.hydra.job.num = str(job), job
    before = HydraConfig.instance().cfg
    HydraConfig.instance().cfg = composed  # type: ignore[assignment]  # set_config would copy it
    try:
        subdir = str(composed.hydra.sweep.subdir)
        if repeat > 1:
            subdir += f"_repeat{repeat}"
        sweep = without_links(Path(str(composed.hydra.sweep.dir)))
        path = sweep.absolute() / subdir
    finally:
        HydraConfig.instance().cfg = before
    if too_long := [part for part in path.parts if len(os.fsencode(part)) > MOST_BYTES]:
        rest = f": the name of a folder has at most {MOST_BYTES} bytes, and this one {len(os.fsencode(too_long[0]))}. "
        how = "Leave it out, or keys of it with hydra.job.config.override_dirname.exclude_keys=[...]."
        raise ConfigurationError.at("hydra.sweep.subdir", subdir, f"{rest}{how}")
    with read_write(composed.hydra.sweep), read_write(composed.hydra.runtime), open_dict(composed.hydra.runtime):
        composed.hydra.sweep.dir, composed.hydra.sweep.subdir = str(sweep), subdir
        composed.hydra.runtime.output_dir = str(path)
    return RunFolder(path)


def decided(planned: PlannedJob, options: Options, origin: Origin) -> PlannedJob:
    """The job with its run config, or with the reason why it cannot run; other configs are left unchanged."""
    if planned.excluded or not is_run_config(planned.config):
        return planned
    entry = planned.entry
    try:
        folders = searched(planned.config.hydra.runtime.config_sources)
        check_experiment(planned.config.hydra.overrides.task, folders)
        run = checked(planned.config, admit=origin.admit, timeout=options.timeout, folders=folders)
    except Unavailable as reason:
        return replace(planned, entry=entry.now("skipped", reason=str(reason)), error=reason)
    except ConfigurationError as error:
        return replace(planned, entry=entry.now("failed", reason=str(error)), error=error)
    return replace(planned, entry=entry.now("pending", signature=signature(run.written)), run=run)


def refuse_wrong_values(planned: Sequence[PlannedJob]) -> None:
    """Print each value that its key never accepts, and raise ConfigurationError if there is one.

    A mistake that depends on several keys fails only the jobs that have all of them.
    """
    wrong = [*{str(job.error): job.error for job in planned if isinstance(job.error, WrongValue)}.values()]
    for error in wrong[:-1]:
        report(error)
    if wrong:
        last = wrong[-1]
        message = f"{last} No job was started."
        raise WrongValue(message, key=last.key, value=last.value, allowed=last.allowed)


def saved(planned: PlannedJob, *, is_own: bool) -> PlannedJob:
    """The job with its files: those that Hydra writes when a job starts, and run.yaml if it can run.

    ``is_own``: whether the composed config is the user's own, as a whole, and is sealed.
    """
    if not is_run_config(planned.config):
        return planned
    folder, run = planned.folder, planned.run
    if run is not None:
        try:
            folder.refuse_second_run()
        except ConfigurationError as error:  # such as of another job with this folder
            return replace(planned, entry=planned.entry.now("failed", reason=str(error)), error=error, run=None)
    composed = _save_composed(folder, planned.config)
    parts = {folder.COMPOSED: composed} if is_own and composed is not None else {}
    if run is not None:
        folder.write_config(run.written, sealed=parts)
    elif parts:
        seal.record(folder.path, parts)
    return replace(planned, run=None)


def _save_composed(folder: RunFolder, composed: DictConfig) -> str | None:
    """Write Hydra's files, so that Hydra does not; returns config.yaml's text.

    None if it is written elsewhere, or the files exist.
    """
    if (name := composed.hydra.output_subdir) is None:
        return None
    path = folder.path / name
    text = None if path.exists() else save_composed(path, composed)  # it exists if another job has the same folder
    guard_logs(composed.hydra)
    with read_write(composed.hydra):
        composed.hydra.output_subdir = None
    return text if path == folder.composed.parent else None
