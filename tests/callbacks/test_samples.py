"""callbacks=samples: pictures while training, which change nothing of the run."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from manyheads.runner.callbacks.rank.samples import drawn_images, drawn_lines
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.pictures import step_of
from manyheads.runner.task.rank.task import Task
from tests.in_process import small, train, weights

TEXT = ("task=language_model", "data=stdlib_text", "data.block_size=16", "model=gpt", "model.width=16", "model.heads=2")
LITTLE = ("trainer.limit_train=4", "trainer.limit_val=2", "trainer.epochs=1")
NUMBERS = ("data=diabetes", "task=regression", "model=mlp", "trainer.epochs=1")


class Drawing(Task):
    """A task that shows what its model draws."""

    reduction = "mean"

    def loss(self, outputs: Any, batch: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, batch[1])

    def sample(self, model: Any, count: int) -> torch.Tensor:
        noise = torch.rand(count, 3, 8, 8)
        return noise * model(noise).softmax(1).amax(1)[:, None, None, None]


class Silent(Task):
    """A task whose scores are not those of samples."""

    reduction, loss = "mean", Drawing.loss

    def scored(self, outputs: Any, batch: Any) -> Iterator[Any]:
        return outputs[:1], batch[1][:1]  # type: ignore[return-value]


RUNS = {
    "images and classes": ("trainer.epochs=1",),
    "numbers": NUMBERS,
    "texts": (*TEXT, *LITTLE),
    "drawn": ("task=custom", f"task._target_={__name__}.Drawing", "trainer.epochs=1"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_picture_is_recorded_and_the_run_is_the_same(tmp_path, name):
    without = train(tmp_path / "without", small(*RUNS[name]))
    run = train(tmp_path / "with", small(*RUNS[name], "callbacks=[samples]"))
    with Image.open(run.folder.pictures / "samples.png") as picture:
        assert len(np.unique(np.asarray(picture))) > 2
    assert step_of((run.folder.pictures / "samples.png").read_bytes()) == run.trainer.progress.step
    one, other = weights(without.trainer), weights(run.trainer)
    assert all(torch.equal(one[key], other[key]) for key in one)
    events = b"".join(path.read_bytes() for path in (run.folder.path / "tensorboard").iterdir())
    assert b"samples" in events


def test_a_task_that_shows_nothing_is_refused(tmp_path):
    given = ("task=custom", f"task._target_={__name__}.Silent", "callbacks=[samples]", "trainer.epochs=1")
    with pytest.raises(ConfigurationError, match=r"Give it a method sample\(model, count\)"):
        train(tmp_path, small(*given))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_drawn_in_a_square(channels):
    png = drawn_images(torch.randn(9, channels, 8, 8), ["$\\frac$"] * 9)
    width, height = Image.open(io.BytesIO(png)).size
    assert 400 < width < height < 600


def test_any_text_is_drawn():
    assert Image.open(io.BytesIO(drawn_lines(["$\\frac$ " * 30, ""]))).size[0] == 900
