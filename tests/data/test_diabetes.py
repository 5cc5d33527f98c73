"""The table of scikit-learn's, read without it."""

import numpy as np
import pytest

from manyheads.runner.data.diabetes import Diabetes
from tests.in_process import small, train


def test_it_is_what_scikit_learn_loads_in_units_of_the_training_samples():
    from sklearn.datasets import load_diabetes  # seconds, where it is needed

    features, values = load_diabetes(return_X_y=True, scaled=False)
    samples = {is_train: Diabetes().split(train=is_train) for is_train in (True, False)}
    assert [len(samples[is_train].features) for is_train in (True, False)] == [354, 88]
    validates = np.arange(442) % 5 == 4
    mean, std = features[~validates].mean(0), features[~validates].std(0)
    assert np.allclose(samples[False].features * std + mean, features[validates], atol=1e-4)
    assert samples[True].targets.std() == pytest.approx(1, rel=1e-5)
    assert np.corrcoef(samples[True].targets, values[~validates])[0, 1] == pytest.approx(1)


def test_a_linear_model_learns_it(tmp_path):
    """R2 and MAE of the run are scikit-learn's."""
    import torch
    from sklearn.metrics import mean_absolute_error, r2_score

    run = train(tmp_path, small("task=regression", "data=diabetes", "model=mlp", "model.depth=0", "data.batch_size=32"))
    samples = Diabetes().split(train=False)
    with torch.no_grad():
        found = run.update.model.eval()(torch.from_numpy(samples.features)).squeeze(1)
    measured = run.folder.read_result()["metrics"]
    assert measured["val_r2"] == pytest.approx(r2_score(samples.targets, found), rel=1e-6)
    assert measured["val_mae"] == pytest.approx(mean_absolute_error(samples.targets, found), rel=1e-6)
    assert measured["val_r2"] > 0.3
