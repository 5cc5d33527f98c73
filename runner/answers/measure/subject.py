"""The run that is measured: composed or recorded, without what would disturb, and its ranks' measurements."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from manyheads.launchers.companions import refuse_start
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.process import handled_by, interrupt
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.source_file import source_file
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.past_config import PastConfig
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.files import fresh_folder
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.progress import working
from manyheads.runner.run.run_folder import RunFolder

EXPLANATIONS = Path("outputs") / "explanations"
RANK = "manyheads.runner.answers.measure.rank.floors"


class Subject(NamedTuple):
    """The run to measure. ``overrides``: from which it was composed; None for a recorded run.

    ``folder``: of a recorded run, if nothing of it is changed.
    """

    run: RunConfig
    overrides: list[str] | None
    folder: Path | None = None


def subject_of(words: Sequence[str], *, config_dir: str | None = None) -> Subject:
    """The run that ``words`` describe, as for train, or as a folder and changes. Raises ConfigurationError."""
    if words and "=" not in words[0] and source_file(words[0]) is None:
        path, *changes = words
        run = PastConfig.admitted(RunFolder(path), changes).checked("checkpoint.resume=null")
        subject = Subject(run, None, None if changes else Path(path))
    else:
        subject = Subject(composed(words, config_dir), [*words])
    check_fresh_start(subject.run, what="a measurement")
    return subject


def check_fresh_start(run: RunConfig, *, what: str) -> None:
    """Raises ConfigurationError for a run that only evaluates, or resumes another.

    ``what``: names in the error what needs training from the start, such as "a judgement".
    """
    unsuited = {"trainer.evaluate_only": run.trainer.evaluate_only, "checkpoint.resume": run.checkpoint.resume}
    for key, value in unsuited.items():
        if value:
            raise ConfigurationError.at(
                key,
                value,
                f": {what} trains from the start. Leave it out, or set checkpoint.load to start from the weights of a "
                "checkpoint.",
            )


def measure(run: RunConfig, *, rank: str = RANK) -> tuple[Path, ResultJson]:
    """Have a run's ranks measure updates, and each of their parts alone; return the folder and its result.json.

    ``rank``: the module that each rank runs. Raises ConfigurationError, RunFailed.
    """
    refuse_start(EXPLANATIONS.absolute())
    folder = RunFolder(fresh_folder(EXPLANATIONS / time.strftime("%Y-%m-%d") / time.strftime("%H-%M-%S")))
    folder.write_config(measured(run).written)
    kept = f"{folder} holds nothing but its logs"
    with handled_by(interrupt), log_file(folder.log), working("updates, and their parts alone", kept=kept):
        launch(prepare(folder, apart=True), main=rank)
    return folder.path, folder.read_result() or {}


def composed(overrides: Sequence[str], config_dir: str | None) -> RunConfig:
    """The run config that a command line describes, as for train. Raises ConfigurationError."""
    line, origin = resolve_origin(CommandLine.of(overrides, config_dir))
    return run_config(list(line.overrides), line, origin)


def measured(run: RunConfig) -> RunConfig:
    """The run without evaluations, checkpoints and other work between epochs, and without trackers."""
    return without_trackers(run, trainer={"evaluate_every": 0}, checkpoint={"every": "0", "monitor": "auto"})


def without_trackers(run: RunConfig, *, trainer: Section, **changes: Section) -> RunConfig:
    """The run with these changes by section, without trackers and other work that may end it or follow it."""
    trainer = {"test": False, "patience": None, "max_time": None, "swa_start": None, **trainer}
    return RunConfig.of({**run.changed(trainer=trainer, **changes).written, "logger": {}})
