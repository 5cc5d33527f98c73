"""``python -m runner manifest``: freeze a run, and write the file with which Kubernetes or SkyPilot runs it."""

import argparse
import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

from manyheads.runner.commands.manifest import kubernetes, skypilot
from manyheads.runner.commands.manifest.subject import Machines, ManifestSubject, name_of
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.fresh_folder import RUN_DIR, named_folder, new_folder
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.provenance.provenance import record
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.run_folder import RunFolder

HELP = "freeze a run, and write a Kubernetes JobSet or a SkyPilot task that runs it, without starting it"
ENGINES: dict[str, ModuleType] = {"kubernetes": kubernetes, "skypilot": skypilot}


@dataclass(frozen=True)
class Manifest(Answer):
    """A frozen run, and the file with which an engine runs it."""

    folder: Annotated[Path, "the run folder"]
    path: Annotated[Path, "the manifest"]
    start: Annotated[str, "the command that starts it"]

    def show(self) -> None:
        where = f"{RunFolder(self.folder)}/{self.path.name}"
        print(f"wrote {where}, which the authors have not tested on a cluster. To start it: {self.start}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("overrides", nargs="*", help="as for train; hydra.run.dir=<folder on shared storage>")
    parser.add_argument("--for", dest="engine", required=True, choices=sorted(ENGINES), help="the engine")
    parser.add_argument("--nodes", type=_positive, default=1, help="number of machines")
    parser.add_argument("--gpus", type=_natural, default=0, help="GPUs per machine")
    parser.add_argument("--cpus", type=_positive, default=8, help="CPU cores per machine")
    parser.add_argument("--accelerator", help="the GPU model, such as H100; for SkyPilot")
    parser.add_argument("--image", required=True, help="the container image, with torch, manyheads and your packages")
    parser.add_argument("--volume", required=True, help="the volume claim, or SkyPilot's volume, of the shared storage")
    parser.add_argument(
        "--shared",
        help="where the storage is mounted, here and on the machines; by default the run folder's parent",
    )
    parser.add_argument("--python", default="python", help="the interpreter in the image")
    parser.add_argument("--config-dir", help="a folder of more options, as for train")


def run(arguments: argparse.Namespace) -> Manifest:
    """Freeze the run and write the manifest. Raises ConfigurationError."""
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


def write(
    overrides: list[str],
    *,
    engine: str,
    machines: Machines,
    image: str,
    volume: str,
    shared: str | None = None,
    python: str = "python",
    config_dir: str | None = None,
) -> Path:
    """Freeze a run, write the manifest into its folder, and return its path.

    ``engine``: a key of ENGINES; the other arguments: as the flags of the command. Raises ConfigurationError.
    """
    line, origin = resolve_origin(
        CommandLine.of([override for override in overrides if not override.startswith(RUN_DIR)], config_dir)
    )
    words = [str(override) for override in line.overrides]
    _refuse_own(words)
    if machines.gpus and engine == "skypilot" and not machines.accelerator:
        message = "--gpus: SkyPilot also needs the GPU model: set --accelerator, such as --accelerator H100."
        raise ConfigurationError(message, key="--gpus")
    folder = RunFolder(named_folder(overrides) or new_folder(overrides))
    folder.refuse_second_run()
    storage = Path(shared).resolve() if shared else folder.path.parent
    if not folder.path.is_relative_to(storage):
        raise ConfigurationError.at("--shared", storage, f": {folder.path} is not inside it. Set hydra.run.dir.")
    written = ENGINES[engine]
    with hardware.elsewhere(gpus=machines.gpus, cores=machines.cpus):
        name = name_of(folder.path, _typed_name(words))
        where = [f"launcher.nodes={machines.nodes}", f"launcher.rendezvous='{written.rendezvous(name)}'"]
        run = run_config(["launcher=torchrun", *written.DEFAULTS, *words, *where], line, origin)
    folder.write_config(run.written)
    record(folder, run)
    digest = hashlib.sha256(folder.config_content()).hexdigest()
    subject = ManifestSubject(name, folder.path, f"{digest} {folder.path}", machines, storage, volume, image, python)
    path = folder.path / f"{engine}.yaml"
    write_whole(path, written.manifest(subject))
    return path


def _refuse_own(words: list[str]) -> None:
    for word in words:
        key = word.lstrip("+~").partition("=")[0]
        if key in ("launcher", "launcher.nodes", "launcher.rendezvous", "launcher.hosts", "launcher.hostfile"):
            raise ConfigurationError(
                f"{word}: the manifest itself determines how ranks are started. Leave it out; see --nodes."
            )


def _typed_name(words: list[str]) -> str | None:
    named = [word.partition("=")[2].strip("'\"") for word in words if word.startswith("name=")]
    return named[-1] if named else None
