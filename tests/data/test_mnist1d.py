"""The published signals, from formulas of our own."""

import numpy as np
import pytest

from manyheads.runner.data.mnist1d import Mnist1D, noisy, signals
from manyheads.runner.errors import ConfigurationError
from tests.in_process import typed

# Of mnist1d 0.0.2.post1, the authors' own generator: the first labels, then values of the first and last signal.
LABELS = [2, 6, 4, 5, 6, 6]
FIRST = [-0.33200566736939013, -0.4719103656557236, -0.778697076293495, -1.0097408265367045]
LAST = [-0.5193287078205188, -0.6987227646777667, -1.2810376906623184]
SHUFFLED = [1.0358740294925417, 0.4101984957624668, -0.8823525654053073, -1.093485710822378]


def test_values_are_those_that_the_authors_generator_prints():
    features, labels = signals(5000)
    assert labels[:6].tolist() == LABELS
    assert np.allclose(features[0, :4], FIRST, rtol=0, atol=1e-12)
    assert np.allclose(features[-1, :3], LAST, rtol=0, atol=1e-12)
    assert np.abs(features).sum() == pytest.approx(148316.17264806535, rel=1e-12)


@pytest.mark.needs("mnist1d")
@pytest.mark.parametrize(("shuffled", "count"), [(False, 1000), (True, 1000), (False, 12_000)])
def test_all_signals_are_those_of_the_authors_generator(shuffled, count):
    from mnist1d.data import get_dataset_args, make_dataset

    settings = get_dataset_args()
    settings.shuffle_seq, settings.num_samples = shuffled, 4000 + count
    settings.train_split = 4000 / settings.num_samples
    published = make_dataset(settings)
    data = Mnist1D(shuffle_positions=shuffled, test_samples=count)
    for end, train in (("", True), ("_test", False)):
        samples = data.split(train=train)
        assert np.allclose(samples.features, published[f"x{end}"], rtol=1e-6, atol=1e-7)
        assert np.array_equal(samples.targets, published[f"y{end}"])


def test_shuffled_positions_are_one_order_for_all_signals():
    plain, shuffled = Mnist1D(), Mnist1D(shuffle_positions=True)
    for train, count in ((True, 4000), (False, 1000)):
        before, after = plain.split(train=train), shuffled.split(train=train)
        assert before.features.shape == after.features.shape == (count, 40)
        assert np.array_equal(before.targets, after.targets)
        assert before.features.dtype == np.float32
        order = [int(np.argmin(np.abs(before.features - column[:, None]).sum(0))) for column in after.features.T]
        assert sorted(order) == list(range(40)) != order
        assert np.allclose(before.features[:, order], after.features)
    assert np.allclose(shuffled.split(train=True).features[0, :4], SHUFFLED, rtol=0, atol=1e-6)


def test_label_noise_replaces_training_labels_only():
    plain, data = Mnist1D(), Mnist1D(label_noise=0.15)
    before, after = (one.split(train=True) for one in (plain, data))
    wrong = np.mean(before.targets != after.targets)
    assert 0.12 < wrong < 0.15  # a tenth of the classes that are drawn are the right ones
    assert np.array_equal(before.features, after.features)
    assert np.array_equal(data.split(train=False).targets, plain.split(train=False).targets)
    assert np.array_equal(data.split(train=True).targets, after.targets)


def test_label_noise_draws_all_classes_equally_often():
    drawn = noisy(np.zeros(100_000, int), 0.999)
    assert np.allclose(np.bincount(drawn) / len(drawn), 0.1, atol=0.005)


@pytest.mark.parametrize("setting", ["data.test_samples=1001", "data.test_samples=0", "data.label_noise=1.0"])
def test_settings_without_a_meaning_are_refused(setting):
    with pytest.raises(ConfigurationError, match=setting.partition("=")[0]):
        typed("data=mnist1d", "model=mnist1d", setting)
