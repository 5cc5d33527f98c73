"""Measure every row within the time that there is, print the table, write outputs/benchmarks/<date>_gpu.json."""

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torchvision
from rich.console import Console

from manyheads.runner.machine import hardware
from tests.benchmarks.gpu import photos
from tests.benchmarks.gpu.case import AGAIN, BY_HAND, MOST_WORKERS, TIMM, Case, Setup, cases
from tests.benchmarks.gpu.measuring import look_at, measured
from tests.benchmarks.gpu.parts import PARTS, differences, parts
from tests.benchmarks.gpu.report import NOTES, WIDTH, as_json, overheads, table

LIMIT = 1.03
COMPARED = {
    BY_HAND: f"the same loop by hand (at most {LIMIT})",
    AGAIN: "that loop when it is measured again, after it",
    TIMM: "timm's train step",
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "cuda": {"models": "resnet50,vit_b_16", "batch_size": 256, "image_size": 224, "steps": 30},
    "cpu": {"models": "resnet18", "batch_size": 8, "image_size": 32, "steps": 4},  # to see that the command works
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tiny, to try the command out")
    parser.add_argument("--models", help="of conf/model, separated by commas (resnet50,vit_b_16)")
    parser.add_argument("--batch-size", type=int, help="samples per step (256)")
    parser.add_argument("--image-size", type=int, help="pixels a side (224)")
    parser.add_argument("--steps", type=int, help="measured of each row, at least (30)")
    parser.add_argument("--rows", help="only those whose line has one of these words, such as 'ready,JPEG manyheads'")
    parser.add_argument("--full", action="store_true", help="compile every combination; wants --minutes 45")
    parser.add_argument("--minutes", type=float, default=9, help="rows that would not end within them are left out (9)")
    given = parser.parse_args()
    for key, value in DEFAULTS[given.device].items():
        if getattr(given, key) is None:
            setattr(given, key, value)
    return given


def main() -> None:
    given, start = arguments(), time.monotonic()
    if given.device == "cuda" and not hardware.gpu_names():
        raise SystemExit(f"error: {hardware.NO_GPU}. --device cpu tries the command out.")
    models = given.models.split(",")
    with tempfile.TemporaryDirectory() as folder:
        setup = prepared(given, Path(folder))
        machine = look_at(models, setup)
        wanted = chosen(cases(models, full=given.full), given.rows)
        rows = measured(wanted, setup, deadline=start + 60 * given.minutes)
        log = (setup.scratch / "log").read_text()
    name = hardware.gpu_names()[0] if given.device == "cuda" else hardware.cpu_model()
    console = Console(width=WIDTH)
    console.print(f"{name}, batches of {given.batch_size} images of {given.image_size} pixels", style="bold")
    console.print(f"at best {in_words(machine.ceilings)}\n")
    console.print(table(rows, machine))
    for column, note in NOTES.items():
        console.print(f"{column}: {note}", style="dim")
    console.print("\nWhat a step consists of, in ms\n", style="bold")
    console.print(parts(rows))
    for column, note in PARTS.items():
        console.print(f"{column}: {note}", style="dim")
    for line in differences(rows):
        console.print(line)
    for loop, what in COMPARED.items():
        for model, ratio in overheads(rows, of=loop).items():
            console.print(f"{model}: manyheads takes {ratio:.3f} of the time of {what}")
    content = {"machine": versions(name), "options": vars(given), **as_json(rows, machine)}
    path = Path("outputs/benchmarks") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_gpu.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))
    path.with_suffix(".log").write_text(log)
    console.print(f"written to {path}, and .log; {time.monotonic() - start:.0f} s")


def chosen(found: list[Case], words: str | None) -> list[Case]:
    return [case for case in found if words is None or any(word in case.line for word in words.split(","))]


def prepared(given: argparse.Namespace, scratch: Path) -> Setup:
    for key in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):  # runs keep seals and lists of files there
        os.environ[key] = str(scratch / key)
    setup = Setup(
        device=given.device,
        batch_size=given.batch_size,
        image_size=given.image_size,
        steps=given.steps,
        cores=min(MOST_WORKERS, hardware.cpu_cores()),
        photos=scratch / "photos",
        scratch=scratch,
    )
    photos.make(setup.photos, samples=setup.longest)
    return setup


def in_words(ceilings: dict[str, float]) -> str:
    speeds = [f"{name} {value / 1e12:,.3g}" for name, value in ceilings.items() if name != "bytes"]
    return f"{', '.join(speeds)} TFLOP/s; {ceilings['bytes'] / 1e12:.3g} TB/s read and written"


def versions(name: str) -> dict[str, Any]:
    return {
        "device": name,
        "cpu": hardware.cpu_model(),
        "cores": hardware.cpu_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


if __name__ == "__main__":
    main()
