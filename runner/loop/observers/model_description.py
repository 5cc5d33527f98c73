"""Writes model.json before the first weights that somebody could use."""

from collections.abc import Callable

from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.run.model_description import Description, write
from manyheads.runner.run.run_folder import RunFolder


class ModelDescription(Observer):
    """``describe``: the content of model.json, known once batches have arrived."""

    def __init__(self, folder: RunFolder, describe: Callable[[], Description]):
        self._folder, self.describe, self._is_written = folder, describe, False

    def saving(self) -> None:
        if not self._is_written:
            write(self._folder, self.describe())
            self._is_written = True
