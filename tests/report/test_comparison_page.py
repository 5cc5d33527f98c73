import json
import re
from pathlib import Path

from manyheads.runner.charts.html_page import as_script
from manyheads.runner.report import charts as charts_module
from manyheads.runner.report import comparison_page as module
from manyheads.runner.report.charts import charts
from manyheads.runner.report.comparison_page import as_page, configs
from tests.report.sweep import Sweep
from tests.sweeps import set_column

EVIL = "</script><script>alert(1)</script><!--\"'&"


def test_what_users_wrote_is_escaped(sweep: Sweep):
    sweep.job(f"+model.note={EVIL}", config={"model.note": EVIL}, seconds=1.0)
    sweep.job("+model.note=b", state="failed", reason=EVIL)
    page = as_page(sweep.compared(), sweep.folder)
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<!--" not in page


def test_the_page_needs_nothing_else(sweep: Sweep):
    sweep.job("parallel=single", seconds=1.0)
    page = as_page(sweep.compared(), sweep.folder)
    assert not re.search(r"https?://|<link[^>]+stylesheet|<script[^>]+src|@import|url\(", page)


def test_links_are_relative(sweep: Sweep, tmp_path: Path):
    sweep.job("parallel=single")
    assert 'href="0/"' in as_page(sweep.compared(), sweep.folder)
    assert 'href="../../sweep/0/"' in as_page(sweep.compared(), tmp_path / "else" / "where")


def test_a_script_cannot_be_ended_by_its_data():
    assert json.loads(as_script({"a": EVIL})) == {"a": EVIL}
    assert "<" not in as_script({"a": EVIL})


def test_configs_are_split_into_what_is_common_and_what_is_not(sweep: Sweep):
    sweep.job("parallel=single")
    sweep.job("parallel=ddp")
    found = configs(sweep.compared())
    assert found["own"] == [{"parallel.name": "single"}, {"parallel.name": "ddp"}]
    assert found["common"]["data.batch_size"] == "8"


def test_gpu_load_is_drawn_where_it_was_measured(sweep: Sweep):
    folder = sweep.job("parallel=single")
    assert "GPU load" not in as_page(sweep.compared(), sweep.folder)
    header = "time,device,utilisation_percent,memory_used_mb,memory_total_mb"
    (folder / "gpu.csv").write_text(f"{header}\n100.5,0,40,900,80000\n101.5,0,90,900,80000\n100.5,1,7,300,80000\n10")
    page = as_page(sweep.compared(), sweep.folder)
    assert "GPU load" in page
    assert '"x":[0.0,1.0],"y":[40.0,90.0]' in page


def test_a_long_curve_is_thinned_and_keeps_its_end(sweep: Sweep):
    folder = sweep.job("parallel=single")
    lines = (folder / "steps.csv").read_text().splitlines()
    (folder / "steps.csv").write_text("\n".join([lines[0], *lines[1:2] * 1000]) + "\n")
    set_column(folder / "steps.csv", "step", list(range(1000)))
    page = as_page(sweep.compared(), sweep.folder)
    assert "995.0,999.0]" in page


def test_lines_of_throughput_can_be_told_apart(sweep: Sweep):
    for parallel in ("single", "ddp"):
        for workers in (0, 2):
            for batch in (8, 16):
                sweep.job(f"parallel={parallel}", f"data.batch_size={batch}", f"data.num_workers={workers}")
    (chart,) = (chart for chart in charts(sweep.compared()) if chart.name == "throughputs")
    names = ["single num_workers 0", "ddp num_workers 0", "single num_workers 2", "ddp num_workers 2"]
    assert sorted(line.name for line in chart.lines) == sorted(names)
    assert len({(line.colour, line.dash) for line in chart.lines}) == 4


def test_the_page_is_small(sweep: Sweep):
    for number in range(20):
        sweep.job(f"optimizer.lr={number}")
    assert len(as_page(sweep.compared(), sweep.folder)) < 300_000


def test_rows_beyond_the_first_are_data_that_the_page_shows_as_one_scrolls(sweep: Sweep, monkeypatch):
    monkeypatch.setattr(module, "FIRST_ROWS", 2)
    for number in range(5):
        sweep.job(f"optimizer.lr=0.{number + 1}")
    page = as_page(sweep.compared(), sweep.folder)
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert page.split("<tbody>")[1].split("</tbody>")[0].count("<tr ") == 2
    assert [(state, links) for state, links, _ in data["more"]][0][0].startswith("completed")
    assert (len(data["more"]), len(data["labels"]), data["at_once"]) == (3, 5, 2)


def test_curves_of_many_runs_have_fewer_points(sweep: Sweep, monkeypatch):
    for number in range(3):
        sweep.job(f"optimizer.lr=0.{number + 1}")
    points = max(len(line.x) for chart in charts(sweep.compared()) for line in chart.lines)
    monkeypatch.setattr(charts_module, "ALL_POINTS", 1)
    monkeypatch.setattr(charts_module, "FEWEST_POINTS", 2)
    thinned = [line for chart in charts(sweep.compared()) if chart.name == "losses" for line in chart.lines]
    assert points > 3 >= max(len(line.x) for line in thinned)
