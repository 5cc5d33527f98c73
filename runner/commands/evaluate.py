"""``python -m runner evaluate``: measure a run's weights on its own data or on other data."""

import argparse
from pathlib import Path

from manyheads.launchers.companions import refuse_start
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.commands import A_RUN, add_weights
from manyheads.runner.config.fresh_folder import new_folder
from manyheads.runner.config.quoting import quoted
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.option.declared import declared
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.changed_data import warn_of_changed, warn_of_copy
from manyheads.runner.provenance.past_config import PastConfig
from manyheads.runner.records.find import OUTPUTS
from manyheads.runner.records.run_result import Result, result_if_any
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.refused_run import clear_refused
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.weights import chosen

HELP = "measure a run's weights on its own data or on other data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument("overrides", nargs="*", help="changes, such as data.root=/data/others parallel=ddp")
    add_weights(parser)


def run(arguments: argparse.Namespace) -> Result:
    """Evaluate a run's weights in a new folder, whose result.json names the run.

    Raises ConfigurationError if the folder is not a run or is not trusted, RunFailed and Interrupted.
    """
    past = PastConfig.admitted(RunFolder(arguments.run_folder), arguments.overrides)
    which, weights = chosen(past.folder, arguments.weights)
    run = past.checked(*_start(past.config, weights))
    typed = split_typed(arguments.overrides)[1]
    if run.data.sources() == declared("data", past.config["data"]).sources():  # no other data was chosen
        warn_of_changed(past.folder, run.data)
    else:
        warn_of_copy(past.folder, run.data)
    refuse_start(OUTPUTS.absolute())
    folder = RunFolder(new_folder(typed))
    try:
        folder.refuse_second_run()
        folder.write_config(run.written)
        print(f"evaluating the {which} weights of {past.folder}", flush=True)
        with log_file(folder.log), keeping("evaluate", "the weights are unchanged"):
            launch(prepare(folder), composed_from=str(past.folder.config))
    except ConfigurationError:  # of the ranks too
        clear_refused(folder)
        raise
    except (RunFailed, Interrupted) as reason:
        reason.answer = result_if_any(folder.path)
        raise
    evaluation = {"of": str(past.folder.path), "weights": which, "overrides": typed}
    folder.write_json(folder.result, {**(folder.read_result() or {}), "evaluation": evaluation})
    return Result.of(folder.path)


def _start(config: Section, weights: Path) -> list[str]:
    """Overrides that turn the config into that of an evaluation; the user's own follow them."""
    start = ["trainer.evaluate_only=true", f"checkpoint.load={quoted(weights)}", "checkpoint.resume=null"]
    if "drop_last" in config["data"]:  # otherwise a training split smaller than a batch would be refused
        start.append("data.drop_last=false")
    return [*start, "checkpoint.strict=true"]
