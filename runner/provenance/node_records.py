"""The machines of a run, as provenance.json describes them: this one, and those on which ranks run."""

import os
import platform
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.json_types import MachineJson, ProvenanceJson, right
from manyheads.runner.run.run_folder import RunFolder


def note_nodes(folder: RunFolder, nodes: Sequence[MachineJson]) -> None:
    """Make provenance.json describe the machine of rank 0, and list all machines under ``nodes``.

    ``nodes``: the inventory of each, with its name, in the order of their ranks. If the command was typed on another
    machine than rank 0's, that one is kept as ``submitted_from``. If provenance.json cannot be read or written, it is
    left unchanged: the ranks report a failing disk.
    """
    with suppress(OSError, ConfigurationError):
        _note(folder, list(nodes))


def unless_submitted(now: ProvenanceJson, recorded: ProvenanceJson) -> ProvenanceJson:
    """The result of ``describe``, without this machine's entries if the recorded run was only submitted from it.

    The machines of the next run are then unknown until its ranks start.
    """
    if now["host"] != recorded.get("submitted_from"):
        return now
    unknown: ProvenanceJson = {
        "cpu": {**now["cpu"], "model": None, "cores": None},
        "versions": {**now["versions"], "driver": None},
        "devices": None,
        "host": None,
        "system": None,
    }
    return {**now, **unknown}


def _note(folder: RunFolder, nodes: list[MachineJson]) -> None:
    before = right(read_json(folder.provenance), ProvenanceJson)
    written = os.stat(folder.provenance)
    first = nodes[0].copy()
    first.pop("node", None)
    now: ProvenanceJson = {
        **before,
        **first,
        "cpu": {**(before.get("cpu") or {}), **first["cpu"]},
        "versions": {**(before.get("versions") or {}), **first["versions"]},
        "nodes": nodes,
    }
    typed_on = before.get("submitted_from", before.get("host"))
    if typed_on not in (None, first["host"]):
        now["submitted_from"] = typed_on
    if now != before:
        folder.write_json(folder.provenance, now)
        with Folder(folder.path) as held:  # the time at which the run was started
            when = (written.st_atime_ns, written.st_mtime_ns)
            os.utime(folder.provenance.name, ns=when, dir_fd=held.handle, follow_symlinks=False)


def inventory() -> MachineJson:
    """Host, system, processor, GPUs that ranks would see, and versions, under the names of provenance.json."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": {"model": hardware.cpu_model(), "cores": hardware.cpu_cores()},
        "devices": hardware.gpu_names(),
        "versions": {
            "python": platform.python_version(),
            "torch": _torch_version(),
            "cuda": hardware.torch_cuda_version(),
            "driver": hardware.driver_version() or None,
        },
    }


def _torch_version() -> str | None:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
