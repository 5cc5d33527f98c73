"""Everything that a command leaves, in a form in which a disturbed one must equal an undisturbed one."""

import hashlib
import json
from pathlib import Path
from typing import Any

from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.callbacks.tracking import lines
from tests.in_process import TIMINGS, rows

OTHERS = ("steps.csv", "epochs.csv", "evaluations.csv", "samples.csv", "gpu.csv", "host.csv")  # not byte by byte
TABLES = ("steps.csv", "epochs.csv", "evaluations.csv")
# What a clock or a process number is in, or what depends on how often a run was started, or how busy the machine was.
VARYING = (
    *("logs", "run.log", "console.log", "crowding.json", "gpu.csv", "host.csv", "tensorboard", "trackers", ".hydra"),
    "filler",
)
ALWAYS = ("status", "steps", "epochs", "samples_seen", "metrics", "best", "objective", "weights_sha256", "error")
ORIGIN = ("format", "signature", "commit", "clean", "versions", "packages", "launcher", "ranks", "data", "directory")
LEFT = ("*.aside", "heartbeat", "nodes.key")


def left_by(folder: Path, tracker: Path, *, exact: bool) -> dict[str, Any]:
    """What the command left in its folder and at its tracker. ``exact``: with numbers that are the same to the bit."""
    ledger = Ledger(folder)
    found: dict[str, Any] = {}
    folders = [RunFolder(folder)]
    if ledger.exists():
        entries = sorted(ledger.entries(), key=lambda entry: (entry.job, entry.repeat))
        found["ledger"] = [[each.job, each.overrides, each.state, each.objective, each.signature] for each in entries]
        found["pruned"] = [[each.job, each.reason] for each in entries if each.state == "pruned"]
        folders = [RunFolder(folder / each.folder) for each in entries]
        found["files"] = sorted(path.name for path in folder.iterdir() if path.name not in ("console.log",))
        pruned = {folder / each.folder for each in entries if each.state == "pruned"}
    else:
        pruned = set()
    found["left over"] = sorted(str(each.relative_to(folder)) for name in LEFT for each in folder.rglob(name))
    for run in folders:
        if run.path not in pruned:  # how far a pruned trial went depends on when it was asked to stop
            found[str(run.path.relative_to(folder))] = left_by_run(run, tracker, exact=exact)
    return json.loads(json.dumps(found))


def left_by_run(run: RunFolder, tracker: Path, *, exact: bool) -> dict[str, Any]:
    result, origin = run.read_result() or {}, json.loads(run.provenance.read_text())
    found: dict[str, Any] = {"result": {key: result.get(key) for key in ALWAYS if exact or key in ALWAYS[:4]}}
    found["keys"] = sorted(result.keys() - {"restarts"})
    found["origin"] = {key: origin.get(key) for key in ORIGIN}
    tops = [path for path in run.path.iterdir() if path.name not in VARYING]
    files = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    found["files"] = sorted(str(path.relative_to(run.path)) for path in files)
    if not exact:
        return found
    for name in TABLES:
        if (run.path / name).exists():
            found[name] = rows(run.path / name, without=TIMINGS)
    for path in files:
        if path.suffix in (".csv", ".safetensors", ".npy") and path.name not in OTHERS:
            found[str(path.relative_to(run.path))] = hashlib.sha256(content(path)).hexdigest()
    found["tracker"] = told(tracker / origin["id"])
    return found


def content(path: Path) -> bytes:
    """The bytes of a file, without the header in which checkpoints say when and by which save they were written."""
    whole = path.read_bytes()
    return whole[8 + int.from_bytes(whole[:8], "little") :] if path.suffix == ".safetensors" else whole


def told(path: Path) -> dict[str, Any]:
    """What a tracker knows of a run in the end: the last value of each step, and how it ended."""
    points: dict[str, dict[str, float]] = {}
    status = None
    for line in lines(path):
        if line["what"] == "point":
            values = {name: value for name, value in line["values"].items() if _is_measured(name)}
            if values:
                points.setdefault(str(line["step"]), {}).update(values)
        if line["what"] == "close":
            status = line["status"]
    return {"points": points, "status": status}


def _is_measured(name: str) -> bool:
    return name.rpartition("/")[2] in ("loss", "lr", "val_loss", "train_loss", "val_acc1", "train_acc1", "grad_norm")


def differences(expected: Any, found: Any, where: str = "") -> list[str]:
    """Where two such descriptions differ, in words."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [*expected, *(key for key in found if key not in expected)]
        return [each for key in keys for each in differences(expected.get(key), found.get(key), f"{where}/{key}")]
    return [] if expected == found else [f"{where}: {str(expected)[:300]} became {str(found)[:300]}"]
