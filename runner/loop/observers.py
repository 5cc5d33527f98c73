"""What watches a run: tables, terminal, loggers and callbacks, from the run config."""

from collections.abc import Mapping

from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.checkpoint.retention import steps_of
from manyheads.runner.checkpoint.sharded.rank.rank_share import StateDict
from manyheads.runner.logger.logger import Guarded, LoggedRun, Logger
from manyheads.runner.logger.logger_option import LoggerOption
from manyheads.runner.logger.rank.csv import CSVWriter, NullWriter
from manyheads.runner.logger.rank.csv_of_replicas import Keeping
from manyheads.runner.logger.run_log import Both, log_display
from manyheads.runner.logger.terminal import Display, Terminal
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.utilization import Utilization
from manyheads.runner.option.locate import Section, instantiate_named
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.run_folder import RunFolder


def build_reporter(
    run: RunConfig,
    parallel: Parallel,
    scores: Scores,
    folder: RunFolder,
    state: StateDict | None,
    *,
    utilization: Utilization | None = None,
    is_silent: bool = False,
) -> Reporter:
    """The rank's reporter. Only rank 0's writes and prints; for an evaluation there are no rows to write."""
    recorder, display = NullWriter(), Display()
    if parallel.records and not is_silent:
        display = Both(Terminal(), log_display(folder.log))
        if not run.trainer.evaluate_only:
            position, step = (state["tables"], state["progress"]["step"]) if state else ({}, 0)
            train, val = scores.names("train"), scores.names("val")
            loggers = build_loggers(
                run.logger, LoggedRun(folder.path, dict(run.written), step, [*train, *val]), display
            )
            within = steps_of(run.trainer.evaluate_every) is not None
            known = {"within_epochs": within, "has_mfu": utilization is not None}
            recorder = CSVWriter(folder, train=train, val=val, position=position, loggers=loggers, **known)
    if parallel.keeps_rows:
        recorder = Keeping(recorder)
    epochs = run.trainer.epochs
    return Reporter(
        recorder=recorder, display=display, parallel=parallel, epochs=epochs, scores=scores, utilization=utilization
    )


def build_loggers(options: Mapping[str, LoggerOption], run: LoggedRun, display: Display) -> list[Logger]:
    """The config's loggers, guarded and started, without trackers, which publishers serve."""
    own = {name: option.section for name, option in options.items() if not option.publishes}
    made = instantiate_named("logger", own, Logger)
    guarded: list[Logger] = [Guarded(name, logger, say=display.say) for name, logger in made.items()]
    for logger in guarded:
        logger.start(run)
    return guarded


def build_callbacks(sections: Mapping[str, Section], parallel: Parallel) -> list[Callback]:
    """The config's callbacks that this rank has."""
    made = instantiate_named("callbacks", sections, Callback)
    return [callback for callback in made.values() if parallel.records or callback.every_rank]
