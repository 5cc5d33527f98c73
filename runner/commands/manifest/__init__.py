"""``python -m runner manifest``: freeze a run, and write the file with which Kubernetes or SkyPilot runs it."""

import argparse
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.launchers.foreign.command import completing
from manyheads.launchers.foreign.conventions import TORCHRUN
from manyheads.launchers.foreign.world import World
from manyheads.runner.commands.manifest.engines import ENGINES, Machines, filled_in
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.fresh_folder import RUN_DIR, named_folder, new_folder
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.provenance.provenance import record
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.frozen_config import CHECKED
from manyheads.runner.run.leaving import STATE
from manyheads.runner.run.run_folder import RunFolder

HELP = "freeze a run, and write a Kubernetes JobSet, a TrainJob or a SkyPilot task that runs it, without starting it"
START_SECONDS = 1800  # machines may start minutes apart: images are pulled, machines are added
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


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
    parser.add_argument("--nodes", type=_at_least(1), default=1, help="number of machines")
    parser.add_argument("--gpus", type=_at_least(0), default=0, help="GPUs per machine")
    parser.add_argument("--cpus", type=_at_least(1), default=8, help="CPU cores per machine")
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
    return Manifest(path.parent, path, f"{ENGINES[arguments.engine].start} {path}")


def _at_least(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text} is not allowed. Allowed: an integer of at least {least}")
        return value

    return integer


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
        raise ConfigurationError(
            "--gpus: SkyPilot also needs the GPU model: set --accelerator, such as --accelerator H100.", key="--gpus"
        )
    folder, storage = _place(overrides, shared)
    name = _name_of(folder.path, _value(words, "name"))
    given = _value(words, "launcher.nproc_per_node")
    ranks = int(given) if given and given.isdecimal() else machines.gpus or 1
    with hardware.elsewhere(gpus=machines.gpus, cores=machines.cpus):
        run = run_config(_with_ranks(words, line, machines.nodes, ranks), line, origin)
    folder.write_config(run.written)
    record(folder, run)
    paths = {"folder": str(folder.path), "shared": str(storage)}
    values = {"name": name, **paths, "volume": volume, "image": image, "python": python, "ranks": ranks}
    values["start_timeout"] = run.written["launcher"].get("start_timeout", START_SECONDS)
    values["variables"] = _variables(folder)
    path = folder.path / f"{engine}.yaml"
    write_whole(path, filled_in(engine, machines, values))
    return path


def _place(overrides: list[str], shared: str | None) -> tuple[RunFolder, Path]:
    """The run's folder, which is new, and the storage that holds it. Raises ConfigurationError."""
    folder = RunFolder(named_folder(overrides) or new_folder(overrides))
    folder.refuse_second_run()
    storage = Path(shared).resolve() if shared else folder.path.parent
    if not folder.path.is_relative_to(storage):
        raise ConfigurationError.at("--shared", storage, f": {folder.path} is not inside it. Set hydra.run.dir.")
    return folder, storage


def _variables(folder: RunFolder) -> dict[str, str]:
    """The environment of each machine, for which the run is the user's own. One that is started again finds its key."""
    digest = hashlib.sha256(folder.config_content()).hexdigest()
    return {CHECKED: f"{digest} {folder.path}", "XDG_STATE_HOME": str(folder.path / STATE), "PYTHONUNBUFFERED": "1"}


def _with_ranks(words: list[str], line: CommandLine, nodes: int, ranks: int) -> list[str]:
    """The overrides, and those with which torchrun's rank 0 would complete them. Raises ConfigurationError."""
    if nodes * ranks == 1:
        return words
    world = World(TORCHRUN.name, rank=0, size=nodes * ranks, local_rank=0, local_size=ranks)
    added = completing(["train", *words], line, world)
    return [
        f"launcher.start_timeout={START_SECONDS}",
        *(word for word in words if word.partition("=")[0] not in added),
        *(f"{key}={value}" for key, value in added.items()),
    ]


def _name_of(folder: Path, name: str | None) -> str:
    """A name for the run that all engines allow, from ``name`` or its folder. Raises ConfigurationError."""
    wanted = re.sub(r"[^a-z0-9]+", "-", (name or f"manyheads-{folder.name}").lower()).strip("-")[:32].strip("-")
    if not _NAME.fullmatch(wanted):
        raise ConfigurationError.at(
            "name", name, " is not allowed by the engine. Allowed: letters, digits and hyphens, with a letter first."
        )
    return wanted


def _refuse_own(words: list[str]) -> None:
    for word in words:
        if word.lstrip("+~").partition("=")[0] in ("launcher", "launcher.nodes"):
            raise ConfigurationError(
                f"{word}: the manifest itself determines how ranks are started. Leave it out; see --nodes."
            )


def _value(words: list[str], key: str) -> str | None:
    """The value that the overrides set, the last of several; None if they set none."""
    named = [word.partition("=")[2].strip("'\"") for word in words if word.startswith(f"{key}=")]
    return named[-1] if named else None
