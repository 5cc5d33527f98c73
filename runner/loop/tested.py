"""Test the best weights once, when training is complete."""

from typing import TYPE_CHECKING, Any

from manyheads.runner.checkpoint.rank.load import load

if TYPE_CHECKING:
    from manyheads.runner.loop.session import Session


def tested(session: "Session") -> dict[str, Any]:
    """Test results for result.json; empty if the run has no test samples, or was stopped early.

    The best weights are those of best.pt, or the last ones if there is none; afterwards the last ones are restored.
    """
    trainer = session.trainer
    if trainer.test is None or trainer.stop.signal is not None or trainer.is_cut:
        return {}
    session.parallel.gather("rank 0 has written best.pt")
    best = session.folder.best_checkpoint
    has_best = best.exists()
    last = {name: weight.clone() for name, weight in session.update.own_weights().items()} if has_best else {}
    if has_best:
        session.state.put(load(best, session.parallel)["model"], best)
    found = trainer.test.run("test")
    if has_best:
        session.update.put_own(last, best)
    if found is None:
        return {}
    columns, corrupt = found
    trainer.progress.corrupt += corrupt
    return {"test": {**columns, "checkpoint": best.name if has_best else None}}
