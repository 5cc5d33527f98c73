"""``python -m runner manifest``: freeze a run, and write the file by which another engine runs that folder."""

import hashlib
from pathlib import Path
from types import ModuleType

from manyheads.runner.commands.manifest import kubernetes, skypilot
from manyheads.runner.commands.manifest.subject import Machines, Subject, name_of
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.fresh_folder import RUN_DIR, named_folder, new_folder
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.provenance.provenance import record
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.run_folder import RunFolder

ENGINES: dict[str, ModuleType] = {"kubernetes": kubernetes, "skypilot": skypilot}


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
    """Freeze the run, write the manifest into its folder, and return where it is. Raises ConfigurationError."""
    line, origin = resolve_origin(
        CommandLine.of([each for each in overrides if not each.startswith(RUN_DIR)], config_dir)
    )
    words = [str(each) for each in line.overrides]
    _refuse_own(words)
    if machines.gpus and engine == "skypilot" and not machines.accelerator:
        raise ConfigurationError("--gpus: SkyPilot also needs the GPU model, as in --accelerator H100.", key="--gpus")
    folder = RunFolder(named_folder(overrides) or new_folder(overrides))
    folder.refuse_second_run()
    place = Path(shared).resolve() if shared else folder.path.parent
    if not folder.path.is_relative_to(place):
        raise ConfigurationError.at("--shared", place, f": {folder.path} is not inside it. Set hydra.run.dir.")
    written = ENGINES[engine]
    with hardware.elsewhere(gpus=machines.gpus, cores=machines.cpus):
        name = name_of(folder.path, _typed_name(words))
        where = [f"launcher.nodes={machines.nodes}", f"launcher.rendezvous='{written.rendezvous(name)}'"]
        run = run_config(["launcher=torchrun", *written.DEFAULTS, *words, *where], line, origin)
    folder.write_config(run.written)
    record(folder, run)
    digest = hashlib.sha256(folder.config_content()).hexdigest()
    subject = Subject(name, folder.path, f"{digest} {folder.path}", machines, place, volume, image, python)
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
