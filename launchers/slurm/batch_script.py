"""Writes a run's batch script into its folder: the requested resources, and the command that resumes the run."""

import math
import os
import re
import shlex
import sys
from pathlib import Path

from jinja2 import Environment, StrictUndefined, TemplateError

from manyheads.launchers.environment import PROJECT
from manyheads.launchers.slurm.allocation import OURS
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.user_folders import STATE
from manyheads.runner.option.rules import seconds
from manyheads.runner.option.tree import Section
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.run_folder import RunFolder

OWN = Path(__file__).with_name("batch.sh.j2")
# Variables that must have the same values in the job as here, wherever a site's batch jobs get their environment.
KEPT = (STATE, "XDG_STATE_HOME", "XDG_CONFIG_HOME")


def script(folder: RunFolder) -> Path:
    """The path of a run's script."""
    return folder.path / "slurm.sh"


def output(folder: RunFolder) -> Path:
    """The file that the job writes to."""
    return folder.logs / "slurm.log"


def write_script(folder: RunFolder, launcher: Section, *, name: str | None, pinned: dict[str, str]) -> str:
    """Fill in the template and write ``script(folder)``; returns the text.

    ``name``: the run's; ``pinned``: the variable that pins run.yaml.

    docs/slurm.md explains a template's variables. Raises ConfigurationError.
    """
    path = Path(launcher["template"] or OWN)
    command = [sys.executable, "-m", "manyheads.runner", "resume", str(folder.path)]
    limit = launcher["time_limit"]
    values = {
        "folder": folder.path,
        "directory": Path.cwd(),
        "name": re.sub(r"[^\w.-]+", "-", name or f"manyheads-{folder.path.name}"),
        "launcher": launcher,
        **{
            key: launcher[key] for key in ("nodes", "cpus_per_node", "gpus_per_node", "requeue", "stop_before", "lines")
        },
        "minutes": None if limit is None else max(1, math.ceil(seconds(limit) / 60)),  # type: ignore[operator]
        "output": str(output(folder)),
        "variables": variables(pinned),
        "command": shlex.join(command),
    }
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters |= {"quote": lambda value: shlex.quote(str(value)), "directive": directive}
    try:
        text = environment.from_string(path.read_text()).render(values)
    except OSError as error:
        raise ConfigurationError.at(
            "launcher.template", path, f": {error.strerror}. Name a file, or set it to null."
        ) from None
    except TemplateError as error:
        raise ConfigurationError.at(
            "launcher.template", path, f": {error}. docs/slurm.md says what it can use."
        ) from None
    write_whole(script(folder), text)
    return text


def directive(value: object) -> str:
    """Quote a value for ``#SBATCH --option=``, where sbatch reads quotes and spaces much as a shell does."""
    text = str(value)
    if "\n" in text:
        raise ConfigurationError(f"{text!r} has a line break, which sbatch options can't contain.")
    return text if re.fullmatch(r"[^\s\"'\\#]+", text) else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def variables(pinned: dict[str, str]) -> dict[str, str]:
    """Environment variables of the job, in addition to those that sbatch passes on."""
    path = os.pathsep.join(dict.fromkeys(filter(None, [*PROJECT, os.environ.get("PYTHONPATH")])))
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    fixed = {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", OURS: "1"}
    return {**({"PYTHONPATH": path} if path else {}), **kept, **fixed, **pinned}
