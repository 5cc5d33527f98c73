"""A SkyPilot task: the same command on each node; nodes find the first one by its address.

Source: https://docs.skypilot.co/en/latest/reference/yaml-spec.html and its page on distributed jobs.
"""

import shlex
from typing import Any

from manyheads.runner.commands.manifest.subject import PORT, ManifestSubject, text

HEAD = "manyheads-head"  # a host name that only nodes know: they learn the address when they start
DEFAULTS = ()


def rendezvous(name: str) -> str:
    """The address of the first node, at which all join."""
    return f"{HEAD}:{PORT}"


def manifest(subject: ManifestSubject) -> str:
    """The text of the manifest."""
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
                # Rewritten at each start: after a recovery the first node has another address. In place, because in
                # containers this file is a mount.
                f"hosts=$(grep -v {HEAD} /etc/hosts)",
                f'printf "%s\\n" "$hosts" "$head {HEAD}" | sudo tee /etc/hosts > /dev/null',
                f"exec {shlex.join(subject.command())}",
                "",
            ]
        ),
    }
    return text("A SkyPilot task", subject, content)
