"""Published measurements: what is predicted from their smallest row holds what was reached when it was recorded.

``python -m tests.answers.scale.simulator.series`` prints the tables of docs/scale-accuracy.md.
"""

from dataclasses import replace

import pytest

from manyheads.runner.answers.scale import answer
from manyheads.runner.answers.scale.simulator import catalog
from manyheads.runner.answers.scale.simulator.interval import MODEL
from manyheads.runner.answers.scale.simulator.predict import replayed
from manyheads.runner.answers.scale.simulator.replay import Assumptions
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout
from tests.answers.scale.fitted import fitted, here, published
from tests.answers.scale.here import DEVELOPMENT as HERE_THEN
from tests.answers.scale.here import read
from tests.answers.scale.simulator import models
from tests.answers.scale.simulator.series import Series, all_series, table
from tests.conftest import ROOT
from tests.tail import tail, tailed

DEVELOPMENT, HELD_OUT = "development", "held out"
HARD = 0.07  # error of linear extrapolation at the largest number of devices, from which on a series is hard
SERIES = {each.name: each for each in all_series()}
# What is predicted badly, and how badly at most: the error at the largest number of devices.
BAD = {
    "dlperf_bert: MXNet, Horovod, batch 32": 0.81,
    "dlperf_bert: TensorFlow 1, Horovod, batch 32": 0.53,
    "dlperf_resnet50: TensorFlow 1, Horovod, fp32": 0.13,
    "kempner_forge: 70B, tensor 4 x FSDP, June": 0.23,
    "llm_foundry: 13B on H100": 0.05,
    "vtrain: 12 layers of 1024": 0.04,
    "vtrain: 24 layers of 2048": 0.05,
}
QUICK = ("dlperf_resnet50: PyTorch, fp32", "llm_foundry: 7B")


@pytest.mark.parametrize("name", tailed(SERIES, always=QUICK))
def test_a_published_series_is_predicted_as_well_as_recorded(name: str) -> None:
    score = SERIES[name].score
    if name in BAD:
        assert score.largest <= BAD[name]
    elif score.linear_largest > HARD:
        assert score.skill >= (0.5 if SERIES[name].content["set"] == DEVELOPMENT else 0.1)
    else:
        assert score.largest <= score.linear_largest + 0.02


@pytest.mark.parametrize(("which", "least"), [tail(DEVELOPMENT, 0.9), tail(HELD_OUT, 0.75)])
def test_so_many_rows_are_within_their_intervals(which: str, least: float) -> None:
    found = [each.score for each in SERIES.values() if each.content["set"] == which]
    assert sum(each.within for each in found) >= least * sum(each.rows for each in found)


@pytest.mark.tail
def test_the_command_says_how_many_of_those_that_were_held_out_were() -> None:
    found = [each.score for each in SERIES.values() if each.content["set"] == HELD_OUT]
    within, rows = sum(each.within for each in found), sum(each.rows for each in found)
    assert f"of {rows} rows of published series, {within} were in such intervals." == answer.HELD


@pytest.mark.tail
def test_the_models_own_error_is_what_the_development_data_say() -> None:
    known = [each for each in SERIES.values() if each.content["set"] == DEVELOPMENT]
    assert fitted([*published(known), *here(read(HERE_THEN))]) == MODEL


@pytest.mark.tail
def test_the_documentation_has_the_scores_of_those_that_were_held_out() -> None:
    held_out = [each for each in SERIES.values() if each.content["set"] == HELD_OUT]
    assert table(held_out) in (ROOT / "docs" / "scale-accuracy.md").read_text()


def test_a_prediction_uses_the_smallest_row_alone() -> None:
    series = SERIES["llm_foundry: 7B"]
    other = Series(series.name, {**series.content, "rows": {**series.content["rows"], 64: 0.1, 128: 99.0}})
    assert other.predictions == series.predictions


def test_the_four_bars_of_imagenet_on_four_gpus_are_those_of_the_loader() -> None:
    """An epoch took DataParallel 4138 s, Horovod 1200, DistributedDataParallel 1188 and Apex 1186.

    Each script has two loader processes in each of its processes. From DataParallel's bar alone, the others come out
    within 15 %, and limited by the loader. Source: https://github.com/tczhangzhi/pytorch-distributed
    """
    images, batch, devices = 1_281_167, 3200, 4
    cluster = catalog.cluster(catalog.device("v100-pcie"), catalog.network("ib-edr"))
    computing = batch / devices / 367.0  # a ResNet-50's images per second, which ResNet-18 exceeds
    step = DeviceUpdate(models.resnet50(), computing / 3, 2 * computing / 3, samples=batch / devices, loaders=2)
    step = replace(step, loading=4138 * step.loaders / images)  # seconds for an image
    together = replayed(step, Exchanges(Layout(replicate=devices), copies=True), cluster, Assumptions())
    assert together.seconds * images / batch == pytest.approx(4138, rel=0.01)
    assert together.data > 0.5 * together.seconds
    for bar in (1200, 1188, 1186):
        exchanges = Exchanges(Layout(replicate=devices), overlaps=True)
        parts = replayed(step, exchanges, cluster, Assumptions())
        assert parts.seconds * images / batch == pytest.approx(bar, rel=0.15)
