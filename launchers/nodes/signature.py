"""Checks that all machines have the same versions and the same typed config, of which only digests are sent."""

import hashlib
import json
from importlib import metadata

from manyheads import __version__
from manyheads.launchers.nodes.meeting import Node
from manyheads.runner.run.flat import flatten
from manyheads.runner.run.locate import Section

OWN = ("launcher.threads_per_rank", "launcher.wait_policy")  # each machine's own


def signature(config: Section) -> dict[str, str]:
    """A digest of the value of each config key."""
    return {
        key: hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]
        for key, value in flatten(config).items()
        if key not in OWN
    }


def other_config(node: Node, own: dict[str, str]) -> str | None:
    """Why a machine's config differs from this run's; None if it does not, or if none was typed there."""
    if (theirs := node.described.get("signature")) is None:
        return None
    keys = sorted(key for key in own.keys() | theirs.keys() if own.get(key) != theirs.get(key))
    if not keys:
        return None
    shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
    return f"{node} was given a different config from the run's parent: {shown}. Type the same command on all machines."


def refused(node: Node) -> str | None:
    """Why a machine cannot take part; None if it can."""
    own = {"torch": metadata.version("torch"), "manyheads": __version__}
    for name, version in own.items():
        if (there := node.described.get(name)) != version:
            return (
                f"{node} has {name} {there}, the run's parent has {version}. Install the same version on all machines."
            )
    return None
