"""The same command typed on every machine: it is the run on the rendezvous's machine, and the run's agent elsewhere."""

import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

from manyheads import __version__
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.nodes.link import ParentLink
from manyheads.launchers.nodes.node_agent import connect, serve
from manyheads.launchers.nodes.rendezvous import Node
from manyheads.launchers.nodes.wire import own_key
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed
from manyheads.runner.machine import addresses

RETRY_SECONDS = 0.5


def join(launcher: LauncherOption, digests: dict[str, str]) -> None:
    """Take part, until it ends, in the run at the rendezvous that the launcher names.

    ``digests``: of the config that was typed here, ``RunConfig.digests``.

    Raises ConfigurationError if that is a different run; RunFailed or Interrupted as the run itself does.
    """
    if launcher.finds_machines:
        print(f"task {os.environ['SLURM_PROCID']} of this step exits: the first task runs everything", flush=True)
        return
    settings = NodeSettings.of(launcher.section)
    assert settings is not None
    assert settings.rendezvous is not None
    host, port = addresses.parse_endpoint("launcher.rendezvous", settings.rendezvous)
    link = _connected(host, port, settings)
    print(f"machine {socket.gethostname()} joins the run of {settings.rendezvous}", flush=True)
    serve(link, name=socket.gethostname(), interface=settings.interface, signature=digests)
    if link.refusal is not None:
        raise ConfigurationError(link.refusal)
    if link.outcome is None:
        raise RunFailed(Failure(Kind.NODE_LOST, message=f"{link.why}."))
    _conclude(link.outcome)


def _connected(host: str, port: int, settings: NodeSettings) -> ParentLink:
    """Connect as soon as the run's parent listens. Raises RunFailed after ``launcher.start_timeout`` seconds.

    The name is looked up for each attempt: a machine that has been replaced has another address.
    """
    key, deadline = own_key(), time.monotonic() + settings.start_timeout
    while True:
        try:
            address = addresses.resolved("launcher.rendezvous", host)
            return connect(address, port, key, silence=settings.silence)
        except OSError as error:
            if time.monotonic() > deadline:
                reason = f"{error} (tried for launcher.start_timeout={settings.start_timeout:g} seconds)"
                raise RunFailed(Failure(Kind.NODE_LOST, message=f"{reason}.")) from None
        time.sleep(RETRY_SECONDS)


def _conclude(outcome: Mapping[str, Any]) -> None:
    code = outcome["code"]
    if code > 128:
        raise Interrupted(code - 128)
    if code:
        raise RunFailed(
            Failure(Kind.PARENT_ENDED, exit_code=code, message=f"the run's parent reports: {outcome['why']}")
        )
    print("completed", flush=True)


OWN = {"launcher.threads_per_rank", "launcher.wait_policy"}  # may differ between machines


def other_config(node: Node, digests: dict[str, str]) -> str | None:
    """Why a machine's config differs from this run's; None if it does not, or if none was typed there.

    ``digests``: ``RunConfig.digests`` of the run.
    """
    if (theirs := node.described.get("signature")) is None:
        return None
    keys = sorted(key for key in (digests.keys() | theirs.keys()) - OWN if digests.get(key) != theirs.get(key))
    if not keys:
        return None
    shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
    return f"{node} was given a different config from the run's parent: {shown}. Type the same command on all machines."


def refused(node: Node) -> str | None:
    """Why a machine cannot take part; None if it can."""
    for name, version in _own_versions().items():
        if (there := node.described.get(name)) != version:
            return (
                f"{node} has {name} {there}, the run's parent has {version}. Install the same version on all machines."
            )
    return None


@cache
def _own_versions() -> dict[str, str]:
    """Read once: 15 ms for each of many machines would be seconds."""
    return {"torch": metadata.version("torch"), "manyheads": __version__}
