"""Measures every configuration of a grid, in interleaved rounds: what the search is compared with.

    python -m tests.answers.tune.grid small_cnn    # on an idle machine; some ten minutes
    python -m tests.answers.tune.grid small_cnn --numerics

writes grids/small_cnn.json next to this file. Runs are those of a tuning (the same ranks, updates and timers), recorded
in its ledger under outputs/grids/, so that an interrupted measurement continues, and ``--rounds`` adds to those there
are. ``--numerics`` then compares the first updates of each configuration with those of the first one, by runs of their
own, which need no idle machine.
"""

import argparse
import json
import platform
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import skimage.data
import torch
from PIL import Image

from manyheads.launchers.warm_server import several
from manyheads.runner.answers.measure.rows import COMPLETED
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.tune.bench import Bench
from manyheads.runner.answers.tune.budget import Budget, arm_of
from manyheads.runner.answers.tune.race import BASE, Times, Variant
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.answers.tune.tune import SERVERS
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.machine import hardware

FOLDER = Path(__file__).parent / "grids"
LEDGERS = Path("outputs") / "grids"
ROUNDS, COUNT = 3, 60
GRID = "grid"  # the purpose of its rounds
PHOTOS = LEDGERS / "photos"

MODELS = {
    "small_cnn": ["experiment=digits_quick"],
    "resnet18": [
        "model=resnet18",
        "data=imagefolder",
        f"data.root={PHOTOS}",
        "data.batch_size=8",
        "data.image_size=64",
    ],
    "gpt_nano": ["experiment=gpt_nano", "optimizer=adamw", "parameters.groups=[]"],
}
# Each key's own value first.
AXES: dict[str, dict[str, list[str]]] = {
    "small_cnn": {
        "parallel": ["single", "ddp", "dp", "fsdp", "zero1", "tensor"],
        "data.on_device": ["false", "true"],
        "trainer.channels_last": ["false", "true"],
        "trainer.grad_accumulation": ["1", "2", "4"],
    },
    "resnet18": {
        "parallel": ["single", "ddp", "fsdp", "zero1"],
        "data.num_workers": ["auto", "0", "2"],
        "trainer.channels_last": ["false", "true"],
        "trainer.grad_accumulation": ["1", "2", "4"],
    },
    "gpt_nano": {
        "parallel": ["single", "ddp", "fsdp", "tensor", "zero1"],
        "data.num_workers": ["0", "1"],
        "launcher.threads_per_rank": ["auto", "1"],
        "trainer.grad_accumulation": ["1", "2", "4"],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--numerics", action="store_true")
    asked = parser.parse_args()
    name = asked.name
    if name == "resnet18":
        _photos()
    line, origin = resolve_origin(CommandLine.of(MODELS[name], None))
    space = Space(line, origin)
    variants = valid(name, space)
    if asked.numerics:
        _compare(name, space, variants)
        return
    bench = _bench(name, space, LEDGERS / name)
    with several(SERVERS):
        bench.prepare()
        rounds = [bench.round(GRID, variants) for _ in range(asked.rounds)]
    _record(name, bench, variants, rounds)


def _bench(name: str, space: Space, folder: Path) -> Bench:
    folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(folder.resolve())
    if not runs.ledger.exists():
        runs.ledger.create({"base": MODELS[name], "draw": name, "format": 1})
    return Bench(runs, space.run, name, Budget(runs.ledger, float("inf")), space.refused)


def _compare(name: str, space: Space, variants: Sequence[Variant]) -> None:
    """Add the classes of what is computed to the grid that was recorded."""
    path = FOLDER / f"{name}.json"
    content = json.loads(path.read_text())
    bench = _bench(name, space, LEDGERS / f"{name}-numerics")
    with several(SERVERS):
        bench.prepare()
        content["numerics"] = {arm_of(each): bench.numerics(each) for each in variants if each != BASE}
    content["failed"] |= {arm: reason for arm, reason in bench.refused.items() if arm in content["numerics"]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def _record(name: str, bench: Bench, variants: Sequence[Variant], rounds: Sequence[Times]) -> None:
    runs = bench.runs
    rows = [row for row in runs.ledger.rows() if row.purpose == GRID and row.state == COMPLETED]
    content: dict[str, Any] = {
        "overrides": [each for each in MODELS[name] if not each.startswith("data.root")],
        "axes": AXES[name],
        "machine": {"cores": hardware.cpu_cores(), "torch": torch.__version__, "python": platform.python_version()},
        "measured": time.strftime("%Y-%m-%d"),
        "scale": bench.scale,
        "log_seconds": {
            arm_of(each): [round(times[each], 5) for times in rounds if each in times] for each in variants
        },
        "run_seconds": {
            arm_of(each): [round(row.duration, 2) for row in rows if row.arm == arm_of(each)] for each in variants
        },
        "numerics": {},
        "failed": {arm: reason for arm, reason in bench.refused.items() if arm in map(arm_of, variants)},
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def valid(name: str, space: Space) -> list[Variant]:
    """The configurations of a grid that can run here, the user's own first."""
    found = []
    for values in product(*AXES[name].values()):
        axes = zip(AXES[name].items(), values, strict=True)
        variant = tuple(f"{key}={value}" for (key, own), value in axes if value != own[0])
        if space.is_possible(variant):
            found.append(variant)
    return found[:COUNT]


def _photos() -> None:
    """JPEGs of 500x375 of four photos, each of them a class."""
    for split, count in (("train", 40), ("val", 8)):
        for label in ("astronaut", "chelsea", "coffee", "rocket"):
            folder = PHOTOS / split / label
            folder.mkdir(parents=True, exist_ok=True)
            photo = Image.fromarray(getattr(skimage.data, label)()).convert("RGB")
            for number in range(count):
                resized = photo.resize((500, 375), Image.Resampling.LANCZOS)
                resized.save(folder / f"{number}.jpg", quality=80 + number % 12)


if __name__ == "__main__":
    main()
