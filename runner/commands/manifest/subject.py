"""The subject of a manifest: a frozen run, and the machines that will run it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import yaml_text

PORT = 29400
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Machines:
    """``gpus``, ``cpus``: of each; ``accelerator``: their GPUs' name, where it has to be said."""

    nodes: int
    gpus: int
    cpus: int
    accelerator: str | None = None


@dataclass(frozen=True)
class ManifestSubject:
    """``checked``: by which run.yaml is known there to be the user's; ``shared``: where the storage is, which holds it.

    ``volume``: the engine's name of that storage. ``python``: the interpreter there.
    """

    name: str
    folder: Path
    checked: str
    machines: Machines
    shared: Path
    volume: str
    image: str
    python: str = "python"

    def variables(self) -> dict[str, str]:
        """Environment variables of each machine. All share a key, which the first one writes into the run's folder."""
        return {
            "MANYHEADS_CHECKED": self.checked,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONUNBUFFERED": "1",
        }

    def command(self) -> list[str]:
        """The command of every machine: the first is the run's parent, the others join it."""
        return [self.python, "-m", "manyheads.runner", "resume", str(self.folder)]


def name_of(folder: Path, name: str | None) -> str:
    """A name that both engines take. Raises ConfigurationError."""
    wanted = re.sub(r"[^a-z0-9]+", "-", (name or f"manyheads-{folder.name}").lower()).strip("-")[:32].strip("-")
    if not _NAME.fullmatch(wanted):
        raise ConfigurationError.at(
            "name", name, ": the engine allows letters, digits and hyphens, with a letter first. Change name."
        )
    return wanted


def text(engine: str, subject: ManifestSubject, content: dict[str, Any]) -> str:
    """The file, with a comment at its top."""
    folder, shared = (printable(each).replace("\n", "\\n") for each in (subject.folder, subject.shared))
    return (
        f"# {engine} for {folder}, written by the command manifest.\n"
        "# NOT TESTED ON A CLUSTER, only validated against the engine's schema. It expects\n"
        f"# - that {shared} is storage shared by all machines under this path, and contains the data too;\n"
        "# - an image with the same versions of torch and manyheads as here, and your own packages.\n"
    ) + yaml_text.dump(content, expanded=True)
