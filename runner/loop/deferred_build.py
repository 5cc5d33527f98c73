"""Builds the model of a strategy that divides it without its values, where that can be done."""

import gc
from collections.abc import Callable
from typing import Any

from torch.nn.parameter import is_lazy

from manyheads.runner.data.rank.rng import GENERATORS, get_state, restored, set_state
from manyheads.runner.model.rank.build_model import Built
from manyheads.runner.parallel.rank.model_parallel.deferred import Deferred, tensors_of
from manyheads.runner.parallel.rank.model_parallel.recorded import Unrecordable
from manyheads.runner.parallel.rank.model_parallel.recording import OperationRecorder


def built(builds: Callable[..., Built], parallel: Any) -> Built:
    """The model with its large tensors on meta, whose values ``parallel.place`` will compute.

    ``builds``: builds it completely, with random numbers from the process's generators. A model that can't be built
    so is built completely; the run's header then says why.
    """
    if parallel.mesh is None:
        return builds()
    state = get_state()

    def complete() -> Any:
        with restored(GENERATORS):
            set_state(state)
            return builds().model

    recording = OperationRecorder(parallel.beat)
    try:
        with recording:
            hollow = builds(is_put_off=True)
        _refuse(hollow.model, recording)
        deferred = Deferred(recording, hollow.model, complete)
    except Exception as error:  # a mistake of the user's is reported when it is built again
        parallel.built_whole = str(error).partition("\n")[0] or type(error).__name__
        set_state(state)
        return builds()
    parallel.deferred = deferred if deferred.defers else None
    return hollow


def _refuse(model: Any, recording: OperationRecorder) -> None:
    """Raises Unrecordable for a model that needs its values before it is divided."""
    tensors = [*tensors_of(model).values()]
    if any(map(is_lazy, tensors)):
        raise Unrecordable("it has lazy modules, which learn their shapes from samples")
    if isinstance(getattr(model, "initial_samples", None), int):
        raise Unrecordable("it initializes itself from samples")
    gc.collect()
    if recording.beside(tensors):
        raise Unrecordable("it keeps tensors that are neither parameters nor buffers")
