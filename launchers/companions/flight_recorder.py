"""Has NCCL log its last calls to logs/nccl_rank_<n> when one times out.

Source: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html. Names of torch 2.6 and of 2.15.
"""

import os
from contextlib import AbstractContextManager, nullcontext

from manyheads.launchers.companions import Accompanied, Span
from manyheads.runner.run.run_folder import FLIGHT, RunFolder

SPAN = Span.RANKS
RECORDED_CALLS = 2000  # per rank


def accompany(run: Accompanied) -> AbstractContextManager[None]:
    """Adds variables for ranks on GPUs."""
    if run.run.on_gpus:
        run.variables.update(variables(run.folder))
    return nullcontext()


def variables(folder: RunFolder) -> dict[str, str]:
    """The variables that switch the recorder on; those of the user's environment stay as they are."""
    size, file = str(RECORDED_CALLS), str(folder.logs / FLIGHT)
    wanted = {
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": size,
        "TORCH_FR_BUFFER_SIZE": size,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": file,
        "TORCH_FR_DUMP_TEMP_FILE": file,
    }
    return {name: os.environ.get(name, value) for name, value in wanted.items()}
