import json
import math
from pathlib import Path

import pytest

from manyheads.runner.charts.chart_spec import Chart
from manyheads.runner.charts.colours import SCALE, colours
from manyheads.runner.report.charts import charts
from manyheads.runner.report.comparison_page import as_page
from tests.report.sweep import Sweep
from tests.sweeps import set_column, set_result


def drawn(sweep: Sweep) -> dict[str, Chart]:
    return {chart.name: chart for chart in charts(sweep.compared())}


def test_the_objective_is_drawn_against_each_swept_key_but_backends_and_seeds(sweep: Sweep):
    for rate, value in ((0.001, 80.0), (0.01, 90.0), (0.1, 70.0)):
        for model in ("small_cnn", "resnet18"):
            for seed in (0, 1):
                best = {"best": {"val_acc1": value + seed}}
                names = (f"model={model}", f"optimizer.lr={rate}", f"seed={seed}")
                sweep.job(*names, config={"seed": seed}, result=best)
    found = drawn(sweep)
    assert [name for name in found if name.startswith("by_")] == ["by_model", "by_optimizer.lr"]
    rates = found["by_optimizer.lr"]
    assert (rates.x.title, rates.x.scale, rates.x.ticks) == ("optimizer.lr", "log", [0.001, 0.01, 0.1])
    assert (rates.y.title, rates.y.within) == ("best accuracy (%)", [0, 100])
    assert sorted(line.name for line in rates.lines) == ["resnet18", "small_cnn"]
    for line in rates.lines:
        assert line.y == [80.5, 90.5, 70.5]
        assert line.spread == pytest.approx([math.sqrt(0.5)] * 3)
    models = found["by_model"]
    assert (models.x.scale, sorted(models.x.labels)) == ("category", ["resnet18", "small_cnn"])
    assert {line.name for line in models.lines} == {"lr 0.001", "lr 0.01", "lr 0.1"}
    assert len({line.colour for line in models.lines}) == 3
    assert {line.mark for line in models.lines} == {"points"}  # nothing lies between two models


def test_of_a_random_search_points_are_drawn(sweep: Sweep):
    for rate, decay in ((0.011, 0.1), (0.023, 0.2), (0.3, 0.3)):
        sweep.job(f"optimizer.lr={rate}", f"optimizer.weight_decay={decay}")
    assert {line.mark for line in drawn(sweep)["by_optimizer.lr"].lines} == {"points"}


def test_a_race_begins_with_time_beside_memory(sweep: Sweep):
    for parallel, memory in (("single", [900.0]), ("ddp", [500.0, 300.0])):
        sweep.job(f"parallel={parallel}", seconds=1.0, result={"peak_memory_mb": memory})
    found = drawn(sweep)
    assert [*found][:2] == ["epoch_times", "memory"]
    assert [(bar.low, bar.value, bar.text) for bar in found["memory"].bars] == [
        (900.0, 900.0, "900 MB"),
        (300.0, 500.0, "500 MB"),
    ]
    assert found["memory"].x.title == "peak memory (MB)"
    assert not any(name.startswith("by_") for name in found)


def test_memory_that_is_the_same_everywhere_is_not_drawn_for_settings(sweep: Sweep):
    for rate, memory in ((0.1, 500.0), (0.2, 510.0)):
        sweep.job(f"optimizer.lr={rate}", result={"peak_memory_mb": [memory]})
    assert "memory" not in drawn(sweep)
    set_result(sweep.folder / "1", {"peak_memory_mb": [600.0]})
    assert "memory" in drawn(sweep)


def test_every_seed_has_its_curve_in_its_rows_colour(sweep: Sweep):
    for rate in (0.1, 0.2):
        for seed in (0, 1):
            sweep.job(f"optimizer.lr={rate}", f"seed={seed}", config={"seed": seed})
    lines = drawn(sweep)["metrics"].lines
    assert [(line.row, line.name) for line in lines] == [(0, "lr 0.1")] * 2 + [(1, "lr 0.2")] * 2
    assert len({line.colour for line in lines}) == 2


@pytest.mark.parametrize(
    ("losses", "scale", "top"),
    [
        ([2.0, 1.9, 1.8], "linear", None),
        ([2.0, 0.5, 0.05], "log", None),
        ([2.0, 1e30, 1.9], "linear", 6.0),
        ([2.0, 1e30, 0.01], "log", 6.0),
        ([2.0, math.nan, math.inf], "linear", None),
    ],
)
def test_losses_are_on_a_scale_that_shows_them(sweep: Sweep, losses: list, scale: str, top: float | None):
    folder: Path = sweep.job("optimizer.lr=0.1")
    set_column(folder / "steps.csv", "loss", (losses * 5)[:15])
    set_column(folder / "epochs.csv", "val_loss", ["", "", ""])
    axis = drawn(sweep)["losses"].y
    assert (axis.scale, axis.top) == (scale, top)


def test_axes_have_titles_with_units(sweep: Sweep):
    for parallel in ("single", "ddp"):
        for batch in (8, 16):
            sweep.job(f"parallel={parallel}", f"data.batch_size={batch}", seconds=1.0)
    titles = {chart.name: (chart.x.title, chart.y.title) for chart in drawn(sweep).values()}
    assert titles == {
        "epoch_times": ("seconds per epoch (s)", ""),
        "memory": ("peak memory (MB)", ""),
        "metrics": ("training time (s)", "accuracy (%)"),
        "throughputs": ("global batch (samples)", "samples/s"),
        "by_data.batch_size": ("data.batch_size", "best accuracy (%)"),
        "losses": ("step", "loss"),
    }


def test_a_scale_of_colours_follows_the_numbers():
    values = ["lr 1e-3", "lr 0.1", "lr 0.01"]
    found = colours((value, None) for value in values)
    assert (found["lr 1e-3"], found["lr 0.1"]) == (SCALE[0], SCALE[-1])
    assert found["lr 0.01"] not in SCALE
    assert colours([("a", None), ("b", None), ("a", "#123456")])["a"] == "#123456"


def test_charts_can_be_written_as_json(sweep: Sweep):
    folder = sweep.job("optimizer.lr=0.1")
    set_column(folder / "steps.csv", "loss", ["nan", "inf"])
    page = as_page(sweep.compared(), sweep.folder)
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    (line, _) = next(chart for chart in data["charts"] if chart["name"] == "losses")["lines"]
    assert line["y"][:2] == [None, None]
