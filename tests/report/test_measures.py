import math
from pathlib import Path

import pytest

from manyheads.runner.records.load_run import load_run, read_columns
from manyheads.runner.report.measures import average, measure
from tests.report.sweep import Sweep
from tests.sweeps import set_column, set_config, set_result, set_seconds


@pytest.fixture
def folder(sweep: Sweep) -> Path:
    return sweep.job("parallel=single", seconds=2.0)


def test_the_first_epoch_does_not_count(folder: Path):
    set_column(folder / "epochs.csv", "train_seconds", [10, 2, 3])
    set_column(folder / "epochs.csv", "samples_per_second", [8, 40, 80 / 3])
    measures = measure(load_run(folder))
    assert (measures.seconds, measures.low, measures.high) == (2.5, 2.0, 3.0)
    assert measures.throughput == 32.0  # 80 samples
    assert not measures.with_first


def test_a_sole_epoch_counts_and_is_marked(sweep: Sweep, folder: Path):
    keep_lines(folder / "epochs.csv", 2)
    set_result(folder, {"samples_per_second": 123.0})
    measures = measure(load_run(folder))
    assert (measures.seconds, measures.throughput, measures.with_first) == (10.0, 8.0, True)
    assert sweep.rows()["0"].marks == ["first epoch included"]


def test_an_epoch_that_was_cut_short_does_not_count(folder: Path):
    set_column(folder / "epochs.csv", "step", [10, 20, 25])
    set_column(folder / "epochs.csv", "train_seconds", [10, 2, 1])
    assert measure(load_run(folder)).seconds == 2.0


def test_data_share_is_weighed_by_time_and_leaves_out_the_first_epoch(folder: Path):
    steps = folder / "steps.csv"
    set_column(steps, "samples", [8 * n for n in range(2, 32, 2)])
    set_column(steps, "samples_per_second", [100.0] * 10 + [200.0] * 5)
    set_column(steps, "data_fraction", [0.9] * 5 + [0.3] * 5 + [0.0] * 5)
    assert measure(load_run(folder)).data_share == pytest.approx(0.2)


@pytest.mark.parametrize("missing", ["steps.csv", "epochs.csv", "result.json", "run.yaml", "provenance.json"])
def test_any_file_may_be_missing(sweep: Sweep, folder: Path, missing: str):
    (folder / missing).unlink()
    assert "0" in sweep.rows()


@pytest.mark.parametrize("file", ["steps.csv", "epochs.csv", "result.json", "run.yaml", "provenance.json"])
@pytest.mark.parametrize("content", ["", "\0\xff{[", "[]"])
def test_any_file_may_be_broken(sweep: Sweep, folder: Path, file: str, content: str):
    (folder / file).write_text(content)
    assert "0" in sweep.rows()


@pytest.mark.parametrize("torn", ["2,30", "2,30,1", '2,"30,1', "x,y,z,z\n", "\0"])
def test_a_torn_line_is_left_out(tmp_path: Path, torn: str):
    path = tmp_path / "steps.csv"
    path.write_text(f"epoch,step,loss\n1,10,2.5\n1,20,\n{torn}")
    columns = read_columns(path)
    assert [*columns["step"]] == [10.0, 20.0]
    assert math.isnan(columns["loss"][1])


@pytest.mark.parametrize("last", ["3,4,5\n", "3,,5\n", "2,3\n3,,5\n"])
def test_columns_can_be_left_out(tmp_path: Path, last: str):
    path = tmp_path / "table.csv"
    path.write_text(f"step,lr,loss\n1,0.1,2\n{last}")
    found = read_columns(path, ("loss", "step", "unknown"))
    assert {name: [*values] for name, values in found.items()} == {"step": [1.0, 3.0], "loss": [2.0, 5.0]}


def test_columns_may_be_added(folder: Path):
    lines = (folder / "epochs.csv").read_text().splitlines()
    (folder / "epochs.csv").write_text("".join(f"{line},{n}\n" for n, line in enumerate(lines)))
    assert measure(load_run(folder)).seconds == 2.0


def test_a_run_without_result_tells_what_its_tables_say(folder: Path):
    set_column(folder / "epochs.csv", "val_acc1", [50, 60, ""])
    (folder / "result.json").unlink()
    measures = measure(load_run(folder))
    assert measures.metric == 60.0
    assert measures.seconds == 2.0
    assert len(measures.memory) == 1


def test_memory_is_of_every_device(folder: Path):
    set_result(folder, {"peak_memory_mb": [900.0, 300.0, 500.0]})
    assert measure(load_run(folder)).memory == (900.0, 300.0, 500.0)


def test_data_parallels_one_rank_works_on_several_devices(folder: Path):
    set_config(folder, {"parallel": "dp", "trainer.device": "cuda", "parallel.device_ids": [0, 1, 2]})
    assert measure(load_run(folder)).devices == 3


def test_repeats_become_one(sweep: Sweep):
    sweep.job("parallel=single", seconds=1.0, result={"metrics": {"val_acc1": 90.0}})
    for repeat, (seconds, accuracy) in enumerate([(2.0, 92.0), (4.0, 94.0)], 2):
        metrics = {"metrics": {"val_acc1": accuracy}}
        sweep.job("parallel=single", seconds=seconds, result=metrics, repeat=repeat)
    measures = sweep.rows()["0"].measures
    assert (measures.seconds, measures.low, measures.high) == (2.0, 1.0, 4.0)
    assert (measures.metric, measures.metric_spread) == (92.0, 2.0)
    assert measures.throughput == 40.0


def test_nothing_measured_is_nothing():
    assert average([]).seconds is None


def keep_lines(path: Path, count: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))


def test_seconds_of_the_material_are_what_they_say(folder: Path):
    set_seconds(folder, 0.5)
    assert measure(load_run(folder)).throughput == 160.0
