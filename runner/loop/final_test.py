"""Test the best weights once, when training is complete."""

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.loop.state import TrainingState
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder


def tested(state: TrainingState, folder: RunFolder) -> ResultJson:
    """Test results for result.json; empty if the run has no test samples, or was stopped early.

    The best weights are those of best.pt, or the last ones if there is none; afterwards the last ones are restored.
    """
    trainer, update, parallel = state.trainer, state.update, state.parallel
    if trainer.test is None or trainer.stop.signal is not None or trainer.is_cut:
        return {}
    parallel.gather("rank 0 has written best.pt")
    best = folder.best_checkpoint
    has_best = best.exists()
    last = {name: weight.clone() for name, weight in update.own_weights().items()} if has_best else {}
    if has_best:
        state.put(load(best, parallel)["model"], best)
    found = trainer.test.run("test")
    if has_best:
        update.put_own(last, best)
    if found is None:
        return {}
    columns, corrupt = found
    trainer.progress.corrupt += corrupt
    return {"test": {**columns, "checkpoint": best.name if has_best else None}}
