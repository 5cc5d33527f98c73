"""What the options declare, without torch."""

from typing import ClassVar

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.samples import ImageArrays
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.rules import number, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.parallel_option import ParallelOption
from manyheads.runner.precision.precision_option import PrecisionOption
from manyheads.runner.task.task_option import TaskOption


class AveragingOption(ParallelOption):
    rules: ClassVar = {"factor": number(above=0)}
    color = "#123456"
    changes_gradients: ClassVar = {"factor": 1.0}

    def note(self) -> str:
        return "averages by hand"

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if run.trainer.compile != "none":
            raise ConfigurationError("parallel=averaging has never been compiled. Set trainer.compile=none.")


class ExactOption(PrecisionOption):
    tolerance = 1e-9

    def note(self) -> str:
        return "every digit counts"


class ShadesOption(TaskOption):
    rules: ClassVar = {"steepness": number(above=0)}
    measures = ("loss", "distance")


class SquaresOption(DataOption):
    rules: ClassVar = {"samples": whole(8)}
    samples: int

    def check_keys(self) -> None:
        super().check_keys()
        if self.samples < self.batch_size:
            raise ConfigurationError(f"data.samples={self.samples} is less than a batch. Set it higher.")


class Squares(Data):
    """Images of one colour each, of a class for each colour."""

    num_classes = 4

    def __init__(self, *, samples: int):
        self.samples = samples

    def split(self, *, train: bool) -> ImageArrays:
        import numpy as np

        targets = np.arange(self.samples) % self.num_classes
        images = np.zeros((self.samples, 1, 8, 8), np.uint8) + (60 * targets[:, None, None, None]).astype(np.uint8)
        return ImageArrays(images, targets, 8)


class NetOption(ModelOption):
    rules: ClassVar = {"features": whole(1)}
    treats_samples_alone = True
