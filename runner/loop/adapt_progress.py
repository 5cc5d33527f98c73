"""Continues from another run's checkpoint, in a run whose epochs may differ from that one's."""

from manyheads.runner.checkpoint.rank.checkpoints import Checkpoints
from manyheads.runner.checkpoint.sharded.rank.rank_share import StateDict
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.loop.trainer import Trainer


def adapt_progress(trainer: Trainer, checkpoints: Checkpoints, state: StateDict) -> None:
    """Fit the restored progress to this run. Raises ConfigurationError if it can't be, or nothing is left to train.

    That run's best checkpoint becomes this run's if it still exists; otherwise the search for the best starts over.
    """
    progress, updates, source = trainer.progress, trainer.train.updates, state["source"]
    try:
        progress.move_to(updates, before=state.get("epoch_updates"))
    except ValueError as error:
        raise ConfigurationError(
            f"{source} is from the middle of epoch {progress.epoch + 1}, and {error}: the rest of the epoch would "
            "have different samples. Set data.batch_size to its value there, or checkpoint.resume to a checkpoint "
            "from an epoch's end."
        ) from None
    progress.ended, progress.waited = None, 0
    waits_for_evaluation = progress.epoch_step == updates
    if progress.step >= trainer.settings.last_step and not waits_for_evaluation:
        key, value = _limit(trainer.settings, updates)
        raise ConfigurationError(
            f"nothing is left to train: {source} is at epoch {progress.epoch}, step {progress.step}, and "
            f"{key}={value} ends there. Increase {key}."
        )
    parallel = trainer.update.parallel
    if checkpoints.enabled and not checkpoints.take_best(source, progress.best, copies=parallel.records):
        progress.best = None


def _limit(settings: TrainSettings, updates: int) -> tuple[str, int]:
    """The key that ends the run, and its value."""
    if settings.last_step < settings.total_steps:
        return "trainer.stop_after", settings.last_step
    if settings.total_steps < settings.epochs * updates:
        return "trainer.max_steps", settings.total_steps
    return "trainer.epochs", settings.epochs
