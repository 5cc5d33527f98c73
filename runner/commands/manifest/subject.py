"""The subject of a manifest: a frozen run, and the machines that will run it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import yaml_text
from manyheads.runner.run.leaving import STATE

PORT = 29400
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Machines:
    """The machines of a run. ``gpus``, ``cpus``: of each machine; ``accelerator``: the GPU model, for SkyPilot."""

    nodes: int
    gpus: int
    cpus: int
    accelerator: str | None = None


@dataclass(frozen=True)
class ManifestSubject:
    """What a manifest describes.

    ``folder``: the run folder. ``checked``: the digest and folder of run.yaml, by which the machines recognize it as
    the user's own. ``shared``: the mount point of the shared storage that contains the run folder. ``volume``: the
    engine's name for that storage. ``python``: the interpreter in the image.
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
        """The environment variables of each machine. All share one key, which the first writes into the run folder."""
        return {
            "MANYHEADS_CHECKED": self.checked,
            "XDG_STATE_HOME": str(self.folder / STATE),
            "PYTHONUNBUFFERED": "1",
        }

    def command(self) -> list[str]:
        """The command that each machine runs: on the first it is the run's parent, on the others it joins the run."""
        return [self.python, "-m", "manyheads.runner", "resume", str(self.folder)]


def name_of(folder: Path, name: str | None) -> str:
    """A name for the run that both engines allow, from ``name`` or its folder. Raises ConfigurationError."""
    wanted = re.sub(r"[^a-z0-9]+", "-", (name or f"manyheads-{folder.name}").lower()).strip("-")[:32].strip("-")
    if not _NAME.fullmatch(wanted):
        raise ConfigurationError.at(
            "name", name, " is not allowed by the engine. Allowed: letters, digits and hyphens, with a letter first."
        )
    return wanted


def text(engine: str, subject: ManifestSubject, content: dict[str, Any]) -> str:
    """The text of a manifest, with a comment at its top. ``engine``: what it is, as a noun."""
    folder, shared = (printable(path) for path in (subject.folder, subject.shared))
    return (
        f"# {engine} for {folder}, written by the command manifest.\n"
        "# NOT TESTED ON A CLUSTER, only validated against the engine's schema. It expects\n"
        f"# - that {shared} is storage shared by all machines under this path, and contains the data too;\n"
        "# - an image with the same versions of torch and manyheads as here, and your own packages.\n"
    ) + yaml_text.dump(content, expanded=True)
