"""What is known of the model of a run, also of one that was recorded before there was a model.json."""

import torch

from manyheads.runner.data.rank.batches import Batches
from manyheads.runner.data.rank.build import build_data, build_dataset
from manyheads.runner.data.rank.loader import Entrance, Loader
from manyheads.runner.data.rank.sampler import EvaluationSampler
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.serve.description import Description, read
from manyheads.runner.serve.rank.describe import describe
from manyheads.runner.serve.rank.preprocess import CPU
from manyheads.runner.task.rank.build import build_task


def description_of(folder: RunFolder, run: RunConfig) -> Description:
    """From model.json, else from the data itself. Raises ConfigurationError where neither can be read."""
    if (found := read(folder)) is not None:
        return found
    try:
        return _from_data(run)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{folder} has no {folder.description.name}, like all runs of earlier versions, and its data, which "
            f"would describe the same, cannot be read: {error}"
        ) from None


def _from_data(run: RunConfig) -> Description:
    """What the run itself would write, after looking at one sample."""
    data = build_data(run.data)
    task = build_task(run.task, data, loss=run.loss, label_smoothing=run.trainer.label_smoothing)
    dataset = build_dataset(data, train=False)
    order = EvaluationSampler(len(dataset), batch_size=1, rank=0, world_size=1)
    batches = Batches(dataset, seed=run.seed, on_corrupt="skip", replace_corrupt=False)
    entrance = Entrance(CPU, torch.float32, False, data.mean, data.std)
    evaluation = Loader(batches, order, task=task, entrance=entrance, num_workers=0)
    next(evaluation.epoch(0), None)
    return describe(evaluation, num_classes=run.model.num_classes or data.num_classes)
