"""Resumes a run in its own folder."""

from collections.abc import Sequence
from contextlib import nullcontext

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config.fresh_folder import is_met_elsewhere
from manyheads.runner.errors import Interrupted, RunFailed
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.past_config import resumed
from manyheads.runner.records.run_result import Result, result_if_any
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.run_folder import RunFolder


def resume_run(
    folder: RunFolder, packages: Sequence[str] = (), *, apart: bool = False, as_recorded: bool = False
) -> Result | None:
    """Resume a run from its last checkpoint, or from its start if it has none.

    packages: the user trusts their code. apart: as for ``Start.of``. as_recorded: files that have changed are replaced
    by their copies. Returns None if this machine only joined a run of several machines. Raises ConfigurationError,
    RunFailed, Interrupted.
    """
    config = resumed(folder, packages, as_recorded=as_recorded)
    run = RunConfig.of(config)
    if is_met_elsewhere(config["launcher"]):
        run.launcher.join(run.digests())
        return None
    try:
        with log_file(folder.log) if folder.path.is_dir() else nullcontext():
            launch(prepare(folder, apart=apart))
    except (RunFailed, Interrupted) as reason:
        reason.answer = result_if_any(folder.path)
        raise
    return Result.of(folder.path)
