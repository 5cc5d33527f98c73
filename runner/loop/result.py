"""What rank 0 knows of result.json."""

from typing import Any

from torch import Tensor

from manyheads.runner.checkpoint.rank.digest import weights_sha256
from manyheads.runner.logger.csv.columns import MFU
from manyheads.runner.loop.header import device_name
from manyheads.runner.loop.trainer import Trainer


def result_of(
    trainer: Trainer, weights: dict[str, Tensor], memory: list[list[tuple[float, float | None]]], **findings: Any
) -> dict[str, Any]:
    """``weights``: of the whole model. ``memory``: MB by rank and device, most of tensors, and most reserved."""
    scores, progress, stopped = trainer.update.scores, trainer.progress, trainer.stop.signal
    return {
        "status": "completed" if stopped is None else "interrupted",
        "signal": stopped,
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
        "weights_sha256": weights_sha256(weights),
        "corrupt_samples": progress.corrupt,
        "skipped_steps": progress.skipped,
        **_utilization(trainer),
        **({"evaluated": "ema"} if trainer.average is not None and trainer.average.is_evaluated else {}),
        **({"ended": progress.ended} if progress.ended else {}),
        **_digests(trainer),
        **findings,
    }


def _utilization(trainer: Trainer) -> dict[str, float]:
    """FLOPs that a sample takes, and MFU, where it is known what the devices can compute."""
    known, speed = trainer.reporter.utilization, trainer.progress.samples_per_second
    if known is None or speed is None:
        return {}
    return {"flops_per_sample": known.flops, MFU: known.mfu(speed)}


def _digests(trainer: Trainer) -> dict[str, dict[str, str]]:
    """The sha256 of the samples of each split, where the data set knows it."""
    loaders = {"train": trainer.train, "val": trainer.evaluation.loader}
    found = {name: getattr(loader.batches.dataset, "digest", None) for name, loader in loaders.items()}
    known = {name: digest for name, digest in found.items() if digest is not None}
    return {"data_sha256": known} if known else {}
