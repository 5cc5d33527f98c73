"""Processes on GPUs, as NVIDIA's driver reports them: also those of other users, and of other programs.

Source: https://docs.nvidia.com/deploy/nvml-api/, nvmlDeviceGetComputeRunningProcesses. A driver reports ids of its own
PID namespace, and within some containers none.
"""

from collections.abc import Iterable

from manyheads.runner.machine.gpus import asked, session


def processes(uuids: Iterable[str]) -> dict[str, list[int]]:
    """The ids of the processes that compute on each of these GPUs, those without any left out."""
    running = {}
    with session() as nvml:
        for uuid in uuids if nvml is not None else ():
            handle = asked(nvml.nvmlDeviceGetHandleByUUID, uuid)
            on_it = asked(nvml.nvmlDeviceGetComputeRunningProcesses, handle) if handle is not None else None
            if on_it:
                running[uuid] = sorted(process.pid for process in on_it)
    return running
