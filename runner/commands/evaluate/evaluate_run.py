"""``python -m runner evaluate``: the past run's config, with changes, evaluates its weights in a new folder."""

from pathlib import Path
from typing import Any

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config import saved
from manyheads.runner.config.command_line import CommandLine, quoted
from manyheads.runner.config.freeze import freeze
from manyheads.runner.config.fresh_folder import RUN_DIR, new_folder
from manyheads.runner.config.typed_files import offer_files
from manyheads.runner.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.option.locate import Section
from manyheads.runner.provenance.kept_files import copies, find_where_started, overrides_of
from manyheads.runner.report.run_result import Result, result_if_any
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.serve.formats import chosen
from manyheads.runner.trust.authorize import refuse_untrusted_run, typed_values
from manyheads.runner.trust.trust_store import Trust, split_typed, trusted_packages


def evaluate(path: str, overrides: list[str], *, which: str | None) -> Result:
    """Evaluate a run's weights in a new folder, whose result.json names the run.

    overrides: changes to its config, such as data.root=...; which: "best" or "last" weights, else the best there are.

    Raises ConfigurationError for what is no run, or not trusted; RunFailed, Interrupted.
    """
    past = RunFolder(path)
    packages, typed = split_typed(overrides)
    past.pin_config()  # first of all, or there is no run to be trusted
    config = past.read_config()
    refuse_untrusted_run(past, packages)
    find_where_started(past)
    which, weights = chosen(past, which)
    line, files = offer_files(CommandLine(tuple(typed)))
    set_anew = [each for each in line.overrides if not each.startswith(RUN_DIR)]
    plain = [*_start(config, weights), *overrides_of(copies(past, config, chosen=line.chosen)), *set_anew]
    own = (*files, *typed_values(plain))
    trust = None if past.is_own() else Trust(trusted_packages(packages), own, past.path)
    composed, folders = saved.composed(config, plain, chosen=line.chosen)
    folder = RunFolder(new_folder(typed))
    try:
        freeze(folder, composed, trust=trust, folders=folders)
    except ConfigurationError:
        folder.clear_refused()
        raise
    print(f"evaluating the {which} weights of {past}", flush=True)
    try:
        with log_file(folder.log), keeping("evaluate", "the weights are unchanged"):
            launch(prepare(folder), composed_from=str(past.config))
    except (RunFailed, Interrupted) as reason:
        reason.answer = result_if_any(folder.path)
        raise
    _note(folder, {"of": str(past.path), "weights": which, "overrides": typed})
    return Result.of(folder.path)


def _start(config: Section, weights: Path) -> list[str]:
    """What makes an evaluation of the config; what the user sets comes behind it."""
    start = ["trainer.evaluate_only=true", f"checkpoint.load={quoted(weights)}", "checkpoint.resume=null"]
    if "drop_last" in config["data"]:  # or a training split of less than a batch would be refused
        start.append("data.drop_last=false")
    return [*start, "checkpoint.strict=true"]


def _note(folder: RunFolder, evaluation: dict[str, Any]) -> None:
    folder.write_json(folder.result, {**(folder.read_result() or {}), "evaluation": evaluation})
