"""How far a measured time may be off, by its rounds and by other launches."""

import math
import random
from statistics import fmean, median

import pytest

from manyheads.runner.answers.scale.simulator import interval
from manyheads.runner.answers.scale.simulator.interval import between_launches, median_error
from tests.answers.scale.here import DEVELOPMENT, read


def test_the_error_of_a_median_is_how_much_medians_of_such_rounds_differ() -> None:
    numbers = random.Random(1)
    rounds = [[numbers.gauss(10, 0.5) for _ in range(5)] for _ in range(2000)]
    medians = [median(each) for each in rounds]
    differ = math.sqrt(fmean((each - 10) ** 2 for each in medians)) / 10
    assert fmean(map(median_error, rounds)) == pytest.approx(differ, rel=0.1)
    assert median_error([3.0]) == 0
    assert median_error([3.0, 3.0, 3.0]) == 0


def test_launches_that_were_measured_count_besides_the_assumption() -> None:
    assert between_launches() == pytest.approx(interval.ON_CPUS)
    assert between_launches(on_gpus=True) == pytest.approx(interval.ON_GPUS)
    assert between_launches((1.0, 1.0)) == pytest.approx(interval.ON_CPUS * math.sqrt(4 / 5))
    far = math.sqrt((4 * interval.ON_CPUS**2 + math.log(1.5) ** 2 / 2) / 5)
    assert between_launches((1.0, 1.5)) == between_launches((1.5, 1.0)) == pytest.approx(far)


def test_the_assumptions_are_those_of_their_sources() -> None:
    pairs = [(each["two"], each["measured"]["2"]) for each in read(DEVELOPMENT).values()]
    assert len(pairs) == 14
    here = math.sqrt(fmean(math.log(second / first) ** 2 / 2 for first, second in pairs))
    assert here == pytest.approx(interval.ON_CPUS, abs=0.0005)
    # ResNet-50 with AMP, images/s of five launches each. DLPerf: NVIDIADeepLearningExamples/PyTorch/resnet50v1.5
    launches = (
        (802.4, 803.69, 802.9, 803.66, 793.9),
        (3137.67, 3129.63, 3144.55, 3137.44, 3119.23),
        (6173.05, 6135.08, 6160.56, 6154.66, 6130.69),
        (11991.94, 11964.81, 11896.95, 11999.35, 12046.71),
        (22978.13, 22053.98, 22551.16, 23049.75, 22364.13),
    )
    squares = [sum((each / fmean(of) - 1) ** 2 for each in of) / 4 for of in launches]
    assert math.sqrt(fmean(squares)) == pytest.approx(interval.ON_GPUS, abs=0.0005)
