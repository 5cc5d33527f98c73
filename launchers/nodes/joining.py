"""One command typed on every machine: it becomes the run on the rendezvous's machine, and its agent elsewhere."""

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from manyheads.launchers.nodes.agent import connect, serve
from manyheads.launchers.nodes.link import Link
from manyheads.launchers.nodes.settings import Settings
from manyheads.launchers.nodes.signature import signature
from manyheads.launchers.nodes.wire import own_key
from manyheads.runner.machine import addresses
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.run.failure import Failure, Kind

RETRY_SECONDS = 0.5


def join(run: RunConfig) -> None:
    """Take part, until it ends, in the run at the rendezvous that the config names.

    Raises ConfigurationError if that is a different run; RunFailed or Interrupted as the run itself does.
    """
    if run.launcher.finds_machines:
        print(f"task {os.environ['SLURM_PROCID']} of this step exits: the first task runs everything", flush=True)
        return
    settings = Settings.of(run.launcher.section)
    assert settings is not None
    assert settings.rendezvous is not None
    host, port = addresses.parse_endpoint("launcher.rendezvous", settings.rendezvous)
    link = _connected(host, port, settings)
    print(f"machine {socket.gethostname()} joins the run of {settings.rendezvous}", flush=True)
    serve(link, name=socket.gethostname(), interface=settings.interface, signature=signature(run.written))
    if link.refusal is not None:
        raise ConfigurationError(link.refusal)
    if link.outcome is None:
        raise RunFailed(Failure(Kind.NODE_LOST, message=f"{link.why}."))
    _conclude(link.outcome)


def _connected(host: str, port: int, settings: Settings) -> Link:
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
