"""Keeps in checkpoints how rows became inputs, so that training never continues on others."""

from collections.abc import Mapping
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.run.checkpoint_places import StateDict


class EncodingRecord(Observer):
    """The ``encoding`` of a data set of rows."""

    key = "encoding"

    def __init__(self, encoding: Mapping[str, Any]):
        self.encoding = encoding

    def state_dict(self) -> StateDict:
        return dict(self.encoding)

    def shares(self) -> StateDict:
        return self.state_dict()

    def restore(self, state: StateDict | None) -> None:
        """Raises ConfigurationError if the checkpoint was trained on inputs that meant something else."""
        if state is not None and state != self.encoding:
            differing = sorted(name for name in state if state[name] != self.encoding.get(name))
            raise ConfigurationError(
                f"data.root: its rows encode the {', '.join(differing)} otherwise than those that the checkpoint was "
                "trained on. Restore the files; or set data.encoding to that run's model.json to continue on these.",
                key="data.root",
            )
