"""A SkyPilot task's: the same command on each node, which find the first one by its address.

Source: https://docs.skypilot.co/en/latest/reference/yaml-spec.html and its page on distributed jobs.
"""

import shlex
from typing import Any

from manyheads.runner.commands.manifest.subject import PORT, ManifestSubject, text

HEAD = "manyheads-head"  # known to the nodes alone: addresses are given when they are there
DEFAULTS = ()


def rendezvous(name: str) -> str:
    """The address at which nodes meet."""
    return f"{HEAD}:{PORT}"


def manifest(subject: ManifestSubject) -> str:
    """The file's text."""
    machines = subject.machines
    resources: dict[str, Any] = {"cpus": f"{machines.cpus}+"}
    if machines.gpus:
        resources["accelerators"] = f"{machines.accelerator}:{machines.gpus}"
    if subject.image:
        resources["image_id"] = f"docker:{subject.image}"
    content = {
        "name": subject.name,
        "num_nodes": machines.nodes,
        "resources": resources,
        "volumes": {str(subject.shared): subject.volume},
        "envs": subject.variables(),
        "run": "\n".join(
            [
                'head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)',
                # Written anew each time: after a recovery the first node has another address. In place, since
                # containers have this file mounted.
                f"hosts=$(grep -v {HEAD} /etc/hosts)",
                f'printf "%s\\n" "$hosts" "$head {HEAD}" | sudo tee /etc/hosts > /dev/null',
                f"exec {shlex.join(subject.command())}",
                "",
            ]
        ),
    }
    return text("A SkyPilot task", subject, content)
