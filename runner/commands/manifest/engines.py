"""The files that engines read: templates beside this file, in which each machine's torchrun resumes the run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from manyheads.runner.errors import printable

PORT = 29400


class Engine(NamedTuple):
    """``title``: what is written; ``start``: the command that starts it."""

    title: str
    start: str


ENGINES = {
    "kubernetes": Engine("A JobSet", "kubectl apply -f"),
    "skypilot": Engine("A SkyPilot task", "sky launch"),
    "trainjob": Engine("A TrainJob of Kubeflow Trainer", "kubectl apply -f"),
}


@dataclass(frozen=True)
class Machines:
    """The machines of a run. ``gpus``, ``cpus``: of each machine; ``accelerator``: the GPU model, for SkyPilot."""

    nodes: int
    gpus: int
    cpus: int
    accelerator: str | None = None


def filled_in(engine: str, machines: Machines, values: Mapping[str, Any]) -> str:
    """The text of the engine's template. ``engine``: a key of ENGINES; ``values``: what the template also reads."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    # Kubernetes replaces $(NAME) by a variable's value, and $$ by $. Source:
    # https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/.
    environment.filters |= {"yaml": _quoted, "literal": methodcaller("replace", "$", "$$"), "printable": printable}
    resources = {"cpu": str(machines.cpus), **({"nvidia.com/gpu": str(machines.gpus)} if machines.gpus else {})}
    of_engine = {**asdict(machines), "resources": resources, "title": ENGINES[engine].title, "port": PORT}
    return environment.get_template(f"{engine}.yaml.j2").render(of_engine, **values)


def _quoted(text: str) -> str:
    """``text`` as YAML in one line, whatever is in it."""
    return yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=True).rstrip("\n")
