"""The table at the end of a run."""

import signal
from typing import Any

from manyheads.runner.loop.scores import Scores
from manyheads.runner.run import called
from manyheads.runner.run.run_folder import RunFolder

SHOWN = 5  # files


def summary(result: dict[str, Any], scores: Scores, folder: RunFolder) -> tuple[str, dict[str, str]]:
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
    if ended := result.get("ended"):
        rows["ended"] = f"before its last epoch, by trainer.{ended}"
    rows["memory"] = " + ".join(f"{memory:,.0f}" for memory in result["peak_memory_mb"]) + " MB peak per device"
    if reserved := result.get("reserved_memory_mb"):
        rows["memory"] += f"; {' + '.join(f'{memory:,.0f}' for memory in reserved)} reserved"
    kinds = {"unreadable samples": result["corrupt_samples"], "updates": result["skipped_steps"]}
    if skipped := [f"{count:,} {kind}" for kind, count in kinds.items() if count]:
        rows["skipped"] = ", ".join(skipped)
    if files := result["corrupt_files"]:
        more = f" and {len(files) - SHOWN:,} more, listed in {folder.result.name}" if len(files) > SHOWN else ""
        rows["unreadable"] = ", ".join(files[:SHOWN]) + more
    rows["weights"] = f"sha256 {result['weights_sha256'][:16]}..."
    rows["results"] = str(folder)
    if result["status"] == "interrupted":
        rows["resume"] = called.command("resume", folder)
    return title, rows


def place(best: dict[str, Any]) -> str:
    """When that was."""
    return f"step {best['step']}" if "step" in best else f"epoch {best['epoch']}"


def shares(seconds: dict[str, float]) -> str:
    """The parts in percent of the whole, the largest first; parts below half a percent are omitted."""
    whole = sum(seconds.values())
    found = sorted(((value / whole, part) for part, value in seconds.items()), reverse=True)
    return ", ".join(f"{part} {share:.0%}" for share, part in found if share >= 0.005)


def _measured(scores: Scores, metrics: dict[str, Any]) -> str:
    samples = metrics.get("test_samples", metrics.get("val_samples"))
    parts = [scores.sentence(metrics), f"on {samples:,} samples" if samples is not None else ""]
    return ", ".join(filter(None, parts)) or "nothing measured"
