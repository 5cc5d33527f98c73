"""Test-time augmentation: evaluations average the outputs of several views of each image."""

import re

import pytest
import torch
from torch.nn.functional import pad

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.guards.views import averaged
from tests.in_process import attempt, opened, small


def test_the_views_are_weighted_as_their_source_says():
    images, seen = torch.arange(2 * 3 * 4 * 5, dtype=torch.float64).view(2, 3, 4, 5), []

    def evaluate(view: torch.Tensor) -> torch.Tensor:
        seen.append(view)
        return view.sum((1, 3))

    padded = pad(images, (1, 1, 1, 1), mode="reflect")
    moved = [padded[:, :, :4, :5], padded[:, :, 2:, 2:]]
    views = [each for view in (images, *moved) for each in (view, view.flip(-1))]
    outputs = averaged("flip_shift", evaluate, images)
    assert len(seen) == 6
    assert all(map(torch.equal, seen, views))
    shares = (0.25, 0.25, 0.125, 0.125, 0.125, 0.125)
    torch.testing.assert_close(outputs, sum(s * v.sum((1, 3)) for s, v in zip(shares, views, strict=True)))
    seen.clear()
    averaged("flip", evaluate, images)
    assert [torch.equal(*pair) for pair in zip(seen, views[:2], strict=True)] == [True, True]


def test_evaluations_are_of_the_mean_and_training_is_not(tmp_path):
    with opened(tmp_path, small("trainer.tta=flip", "precision=fp64")) as trainer:
        update, batch = trainer.update, next(trainer.evaluation.loader.epoch(0))
        outputs = []
        passed = update.evaluate(update.model.eval(), batch, on_outputs=outputs.append)
        expected = (update.model(batch.inputs) + update.model(batch.inputs.flip(-1))) / 2
        torch.testing.assert_close(outputs[0], expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(passed.loss, update.scores.task.loss(expected, batch.content).detach())


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("task=segmentation", "data=shapes", "model=fcn_resnet50"), "outputs of task=segmentation cannot be averaged"),
        (("data=diabetes", "task=regression", "model=mlp"), "outputs of task=regression cannot be averaged"),
        (("trainer.tta=flp",), 'trainer.tta="flp" is not allowed. Did you mean flip? Allowed: none, flip, flip_shift.'),
    ],
)
def test_it_is_refused_where_it_means_nothing(tmp_path, overrides, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, small(*(() if "trainer.tta=flp" in overrides else ("trainer.tta=flip",)), *overrides))


def test_inputs_that_are_no_images_are_refused():
    with pytest.raises(ConfigurationError, match=r"trainer\.tta=flip: the model's inputs are not images\."):
        averaged("flip", lambda view: view, torch.zeros(2, 8))
