"""The loaders of a run."""

import pytest

from manyheads.runner.errors import ConfigurationError
from tests.in_process import attempt, opened, small


def test_loaders_follow_the_config(tmp_path):
    with opened(tmp_path, small("data.drop_last=false", "data.train_samples=163")) as trainer:
        assert (trainer.train.samples, trainer.evaluation.loader.samples) == (163, 37)
        assert (trainer.train.updates, trainer.evaluation.loader.updates) == (21, 5)
        assert trainer.settings.total_steps == 42


def test_a_batch_of_more_than_all_samples_is_refused_unless_it_may_be_incomplete(tmp_path):
    with pytest.raises(ConfigurationError, match=r"data\.batch_size=8 is more than the 5 training samples"):
        attempt(tmp_path, small("data.train_samples=5"))
    with opened(tmp_path, small("data.train_samples=5", "data.drop_last=false")) as trainer:
        assert trainer.train.updates == 1
