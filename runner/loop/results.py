"""The part of result.json that rank 0 knows, with a test of the best weights, once, when training is complete."""

import signal
from collections.abc import Mapping
from typing import Any

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.loop.header_rows import device_name
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.state import TrainingState
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.run.json_types import Numbers, ResultJson
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.slow_ranks import slow_in_words
from manyheads.runner.wording import counted


def result_of(
    trainer: Trainer, digest: str, memory: list[list[tuple[float, float | None]]], **findings: Any
) -> ResultJson:
    """The result of ``trainer``'s run so far, with ``findings``.

    ``digest``: of the whole model's weights; ``memory``: by rank and device, the peak MB of tensors, and of reserved
    memory.
    """
    scores, progress, stopped = trainer.update.scores, trainer.progress, trainer.stop.signal
    result: ResultJson = {
        "status": "completed" if stopped is None else "interrupted",
        "epochs": progress.epoch,
        "steps": progress.step,
        "samples_seen": progress.samples,
        "device": device_name(trainer.update.parallel.device),
        "train_seconds": progress.train_seconds + progress.seconds,
        "time": progress.time(progress.seconds),
        "samples_per_second": progress.samples_per_second,
        "peak_memory_mb": [peak for rank in memory for peak, _ in rank],
        "reserved_memory_mb": [most for rank in memory for _, most in rank if most is not None],
        "metrics": progress.metrics,
        # The monitored metric of the best epoch, or of the evaluation.
        "objective": (progress.best or progress.metrics).get(scores.monitor),
        "best": progress.best,
        "scores": scores.describe(),
        "weights_sha256": digest,
        "corrupt_samples": progress.corrupt,
        "skipped_steps": progress.skipped,
        **_utilization(trainer),
        **findings,  # type: ignore[typeddict-item]  # of what the rank did, such as parity's
    }
    if stopped is not None:
        result["signal"] = stopped
    if progress.ended:
        result["ended"] = progress.ended
    if digests := _digests(trainer):
        result["data_sha256"] = digests
    return result


def _utilization(trainer: Trainer) -> ResultJson:
    """FLOPs per sample, and MFU; empty if the devices' peak is unknown."""
    utilization, speed = trainer.reporter.utilization, trainer.progress.samples_per_second
    if utilization is None or speed is None:
        return {}
    return {"flops_per_sample": utilization.flops, "mfu": utilization.mfu(speed)}


def _digests(trainer: Trainer) -> dict[str, str]:
    """The sha256 of the samples of each split, if the data set provides it."""
    loaders = {"train": trainer.train, "val": trainer.evaluation.loader}
    digests = {name: getattr(loader.batches.dataset, "digest", None) for name, loader in loaders.items()}
    return {name: digest for name, digest in digests.items() if digest is not None}


SHOWN = 5  # files


def summary(result: ResultJson, scores: Scores, folder: RunFolder) -> tuple[str, dict[str, str]]:
    """Title and rows of the table at the end."""
    title = (
        "completed" if result["status"] == "completed" else f"interrupted by {signal.Signals(result['signal']).name}"
    )
    rows = {}
    if result["best"]:
        rows["best"] = f"{place(result['best'])}: {_measured(scores, result['best'])}"
    rows["last" if result["best"] else "metrics"] = _measured(scores, result["metrics"])
    if "test" in result:
        rows["test"] = _measured(scores, result["test"])
    if result["samples_per_second"]:
        rows["speed"] = f"{result['samples_per_second']:,.0f} samples/s; {result['train_seconds']:.1f} s of training"
        rows["speed"] += f"; MFU {result['mfu']:.1%}" if "mfu" in result else ""
    if any(result["time"].values()):
        rows["time"] = shares(result["time"])
    if slow := result.get("slow_ranks"):
        rows["slow"] = slow_in_words(slow)
    if ended := result.get("ended"):
        rows["ended"] = f"before its last epoch, by trainer.{ended}"
    rows["memory"] = " + ".join(f"{memory:,.0f}" for memory in result["peak_memory_mb"] or ()) + " MB peak per device"
    if reserved := result.get("reserved_memory_mb"):
        rows["memory"] += f"; {' + '.join(f'{memory:,.0f}' for memory in reserved)} reserved"
    kinds = {"reads of unreadable samples": result["corrupt_samples"], "updates": result["skipped_steps"]}
    if skipped := [f"{count:,} {kind}" for kind, count in kinds.items() if count]:
        rows["skipped"] = ", ".join(skipped)
    if files := result.get("corrupt_files"):
        more = f" and {len(files) - SHOWN:,} more, listed in {folder.result.name}" if len(files) > SHOWN else ""
        rows["unreadable"] = ", ".join(files[:SHOWN]) + more
    rows["weights"] = f"sha256 {(result['weights_sha256'] or '')[:16]}..."
    rows["results"] = str(folder)
    return title, rows


def place(best: Numbers) -> str:
    """When the best value was reached."""
    return f"step {best['step']}" if "step" in best else f"epoch {best['epoch']}"


def shares(seconds: Mapping[str, float]) -> str:
    """The parts in percent of the whole, the largest first; parts below half a percent are omitted."""
    total = sum(seconds.values())
    fractions = sorted(((value / total, part) for part, value in seconds.items()), reverse=True)
    return ", ".join(f"{part} {share:.0%}" for share, part in fractions if share >= 0.005)


def _measured(scores: Scores, metrics: Numbers) -> str:
    samples = metrics.get("test_samples", metrics.get("val_samples"))
    parts = [scores.sentence(metrics), f"on {counted(int(samples), 'sample')}" if samples is not None else ""]
    return ", ".join(filter(None, parts)) or "nothing measured"


def tested(state: TrainingState, folder: RunFolder) -> ResultJson:
    """Test results for result.json; empty if the run has no test samples, or was stopped early.

    The best weights are those of best.pt, or the last ones if there is none; afterwards the last ones are restored.
    """
    trainer, update, parallel = state.trainer, state.update, state.parallel
    if trainer.test is None or trainer.stop.signal is not None or trainer.is_cut:
        return {}
    best = folder.best_checkpoint
    has_best: bool = parallel.gather(best.exists())[0]  # for all ranks, which load it together; rank 0 has written it
    last = {name: weight.clone() for name, weight in update.own_weights().items()} if has_best else {}
    if not has_best:
        trainer.reporter.display.say("there is no best.pt: the last weights are tested")
    if has_best:
        state.put(load(best, parallel)["model"], best)
    evaluated = trainer.test.run("test")
    if has_best:
        update.put_own(last, best)
    if evaluated is None:
        return {}
    columns, corrupt = evaluated
    trainer.progress.corrupt += corrupt
    return {"test": {**columns, "checkpoint": best.name if has_best else None}}
