"""``python -m runner manifest``: a run's folder, and a file by which Kubernetes or SkyPilot would run it."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands.manifest.subject import Machines
from manyheads.runner.commands.manifest.write_manifest import ENGINES, write
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.run_folder import RunFolder

HELP = "freeze a run, and write a Kubernetes JobSet or a SkyPilot task that runs it, without starting it"


@dataclass(frozen=True)
class Manifest(Answer):
    """A frozen run, and the file by which an engine runs it."""

    folder: Annotated[Path, "of the run"]
    path: Annotated[Path, "the manifest"]
    start: Annotated[str, "the command that starts it"]

    def show(self) -> None:
        where = f"{RunFolder(self.folder)}/{self.path.name}"
        print(f"wrote {where}, which the authors have not tested on a cluster. To start it: {self.start}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("overrides", nargs="*", help="as for train; hydra.run.dir=<folder on shared storage>")
    parser.add_argument("--for", dest="engine", required=True, choices=sorted(ENGINES), help="the engine")
    parser.add_argument("--nodes", type=_positive, default=1, help="machines")
    parser.add_argument("--gpus", type=_natural, default=0, help="GPUs per machine")
    parser.add_argument("--cpus", type=_positive, default=8, help="CPU cores per machine")
    parser.add_argument("--accelerator", help="the GPU model, such as H100; for SkyPilot")
    parser.add_argument("--image", required=True, help="the container image, with torch, manyheads and your packages")
    parser.add_argument("--volume", required=True, help="the volume claim, or SkyPilot's volume, of the shared storage")
    parser.add_argument(
        "--shared", help="where it is mounted, both here and there; by default the parent of the run folder"
    )
    parser.add_argument("--python", default="python", help="the interpreter in the image")
    parser.add_argument("--config-dir", help="a folder of more options, as for train")


def run(arguments: argparse.Namespace) -> Manifest:
    """Write it. Raises ConfigurationError."""
    machines = Machines(arguments.nodes, arguments.gpus, arguments.cpus, arguments.accelerator)
    keys = ("engine", "image", "volume", "shared", "python", "config_dir")
    path = write(arguments.overrides, machines=machines, **{key: getattr(arguments, key) for key in keys})
    start = {"kubernetes": "kubectl apply -f", "skypilot": "sky launch"}[arguments.engine]
    return Manifest(path.parent, path, f"{start} {path}")


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not allowed. Allowed: an integer of at least 1")
    return value


def _natural(text: str) -> int:
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is not allowed. Allowed: an integer of at least 0")
    return value
