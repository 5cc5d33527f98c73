"""Opens the rendezvous of a run's machines, and releases them when the run ends."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.nodes.gathering import Gathering
from manyheads.launchers.nodes.rendezvous import Meeting
from manyheads.launchers.nodes.wire import new_key, own_key
from manyheads.runner.machine import addresses
from manyheads.runner.run.files import remove
from manyheads.runner.run.leaving import KEY
from manyheads.runner.run.run_folder import RunFolder


@contextmanager
def gathering(settings: NodeSettings, folder: RunFolder) -> Iterator[Gathering]:
    """The machines of a run, released when it ends."""
    if settings.rendezvous is not None:
        host, port = addresses.parse_endpoint("launcher.rendezvous", settings.rendezvous)
        address = addresses.own_address(settings.interface) if settings.interface else addresses.meeting_place(host)
        machines = Gathering(settings, folder, Meeting(address, port, own_key()), None, {socket.gethostname()})
    else:
        machines = called_machines(settings, folder)
    with let_go(machines):
        yield machines


@contextmanager
def let_go(machines: Gathering) -> Iterator[None]:
    """Release the machines on exit, and tell them why if the run did not complete."""
    reason: BaseException | None = None
    try:
        yield
    except BaseException as error:
        reason = error
        raise
    finally:
        with suppress(OSError):
            machines.close(reason)


def meet(address: str, folder: RunFolder) -> tuple[Meeting, Path]:
    """Listen on a free port of this machine; return the rendezvous and the file with the run's new key."""
    key = folder.logs / KEY
    remove(key)  # left by an attempt that was killed
    return Meeting(address, 0, new_key(key)), key


def called_machines(settings: NodeSettings, folder: RunFolder) -> Gathering:
    """Gather the machines that the settings list, by starting an agent on each."""
    places = settings.addresses or {name: addresses.resolved("launcher.hosts", name) for name in settings.hosts}
    here = set() if settings.addresses else {name for name, address in places.items() if addresses.is_own(address)}
    others = [address for name, address in places.items() if name not in here]
    meeting_address = addresses.own_address(settings.interface, towards=others[0] if others else None)
    return Gathering(settings, folder, *meet(meeting_address, folder), here)
