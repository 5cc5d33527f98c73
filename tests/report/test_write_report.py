import csv
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.report import write_report
from manyheads.runner.report.answer import show
from manyheads.runner.report.write_report import NothingToCompare, refresh, report
from manyheads.runner.run.run_folder import RunFolder
from tests.report.sweep import Sweep
from tests.sweeps import set_column

FILES = ["comparison.csv", "comparison.html", "comparison.md", "comparison.png"]


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("comparison.*"))


def test_a_sweep_gets_its_files(sweep: Sweep, capsys: pytest.CaptureFixture[str]):
    sweep.job("parallel=single", "data.batch_size=8", seconds=2.0)
    sweep.job("parallel=ddp", "data.batch_size=8", seconds=1.0, ranks=2)
    sweep.job("parallel=horovod", "data.batch_size=8", state="failed", reason="rank 0 failed first")
    report([str(sweep.folder)]).show()
    out = capsys.readouterr().out
    assert out.startswith(f"{sweep.folder}: 2 of 3 jobs completed, 1 failed\n")
    assert "2.00 x" in out
    assert "job 2 failed: rank 0 failed first" in out
    assert written(sweep.folder) == FILES
    with Image.open(sweep.folder / "comparison.png") as image:
        assert image.width > 1000


def test_the_csv_has_everything_in_full(sweep: Sweep):
    sweep.job("parallel=single", seconds=2.0, result={"weights_sha256": "a" * 64, "peak_memory_mb": [3.0, 1.0]})
    report([str(sweep.folder)])
    with open(sweep.folder / "comparison.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["weights"] == "a" * 64
    assert (row["peak_memory_mb"], row["lowest_peak_memory_mb"]) == ("3.0", "1.0")
    assert (row["repeats"], row["seconds_per_epoch"], row["seconds_per_epoch_high"]) == ("1", "2.0", "2.0")


def test_markdown_shows_what_users_wrote_as_it_is(sweep: Sweep):
    sweep.job("+model.note=a|b")
    sweep.job("+model.note=<b>_x_")
    report([str(sweep.folder)])
    text = (sweep.folder / "comparison.md").read_text()
    assert "a\\|b" in text
    assert "&lt;b>\\_x\\_" in text


@pytest.mark.parametrize("states", [[], ["pending"], ["failed", "skipped"], ["interrupted"]])
def test_nothing_completed_is_exit_code_1(sweep: Sweep, states: list[str], capsys: pytest.CaptureFixture[str]):
    for state in states:
        sweep.job("parallel=single", state=state)
    with pytest.raises(NothingToCompare) as caught:
        report([str(sweep.folder)])
    assert caught.value.exit_code == 1
    assert f"{sweep.folder}: " in capsys.readouterr().out


def test_loose_runs_get_a_folder_of_their_own(real_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda text: text.strip("%"))
    for name in ("H-%M-%S", "H-%M-%S_2"):
        report([str(real_run.path)])
        assert written(tmp_path / "outputs" / "comparisons" / "Y-%m-%d" / name) == FILES


def test_files_go_where_they_are_wanted(real_run: RunFolder, tmp_path: Path):
    report([str(real_run.path)], to=str(tmp_path / "a" / "b"))
    assert written(tmp_path / "a" / "b") == FILES
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="can't be written"):
        report([str(real_run.path)], to=str(tmp_path / "file"))


def test_not_a_number_is_no_obstacle(sweep: Sweep):
    folder = sweep.job("parallel=single", result={"metrics": {"val_loss": float("nan"), "val_acc1": float("nan")}})
    for column in ("loss", "samples_per_second", "data_fraction"):
        set_column(folder / "steps.csv", column, ["nan", "inf", "-inf"])
    for column in ("val_loss", "val_acc1", "samples_per_second", "peak_memory_mb"):
        set_column(folder / "epochs.csv", column, ["nan"] * 3)
    report([str(sweep.folder)])
    assert written(sweep.folder) == FILES


def test_without_epochs_there_is_no_picture(sweep: Sweep):
    folder = sweep.job("parallel=single")
    (sweep.folder / "comparison.png").write_text("an older one")
    (folder / "epochs.csv").unlink()
    report([str(sweep.folder)])
    assert "comparison.png" not in written(sweep.folder)


def test_refresh_never_fails(sweep: Sweep, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    refresh(sweep.folder, quiet=False)
    sweep.job("parallel=single", state="failed")
    refresh(sweep.folder, quiet=True)
    assert "comparison.html" in written(sweep.folder)
    capsys.readouterr()
    monkeypatch.setattr("manyheads.runner.report.write_report.as_page", lambda *_, **__: 1 / 0)
    refresh(sweep.folder, quiet=True)
    assert capsys.readouterr().out == ""
    refresh(sweep.folder, quiet=False)
    assert "division by zero" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 100, 200])
def test_a_terminals_table_fits(sweep: Sweep, width: int):
    sweep.job("parallel=single", seconds=2.0)
    sweep.job("parallel=ddp", seconds=1.0)
    with open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, force_terminal=True, width=width, record=True, highlight=False)
        show(sweep.compared(), console=console)
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= width
    assert ("Columns that did not fit" in text) == (width < 160)


def test_a_pipe_has_all_columns_unless_their_number_is_set(sweep: Sweep, monkeypatch, capsys):
    sweep.job("parallel=single", seconds=2.0)
    sweep.job("parallel=ddp", seconds=1.0)
    monkeypatch.delenv("COLUMNS", raising=False)
    for columns in (None, 100):
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        show(sweep.compared())
        table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("┃")]
        assert (max(map(len, table)) <= 100) == (columns == 100)


@pytest.mark.parametrize("width", [46, 80, 120])
@pytest.mark.parametrize("key", ["parallel", "optimizer.lr"])
def test_accuracy_is_the_last_column_to_be_left_out(sweep: Sweep, width: int, key: str):
    for value, best in {"parallel": {"single": 90.0, "ddp": 80.0}, "optimizer.lr": {"1": 90.0, "2": 80.0}}[key].items():
        scores = {"best": {"val_acc1": best}, "metrics": {"val_acc1": best}}
        sweep.job(f"{key}={value}", "model.width=64", f"trainer.epochs={int(best)}", result=scores, seconds=1.0)
    with open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, force_terminal=True, width=width, record=True, highlight=False)
        show(sweep.compared(), console=console)
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= width
    assert "90.00 %" in text
    assert any("accuracy" in line for line in text.splitlines() if line.startswith("┃"))


@pytest.mark.parametrize("states", [[], ["running", "pending"], ["failed", "pending"]])
def test_of_a_running_sweep_nothing_completed_is_no_error(
    sweep: Sweep, states: list[str], capsys: pytest.CaptureFixture[str]
):
    for state in states:
        sweep.job("parallel=single", state=state)
    assert sweep.ledger
    with sweep.ledger.locked():
        report([str(sweep.folder)]).show()
    assert ("0 of 2 jobs completed" if states else "no jobs yet") in capsys.readouterr().out


def test_every_form_tells_what_to_know(tmp_path: Path, real_run: RunFolder, capsys: pytest.CaptureFixture[str]):
    sweep = Sweep(tmp_path / "sweep", real_run, options={"jobs": 3})
    for parallel in ("single", "ddp"):
        sweep.job(f"parallel={parallel}")
    report([str(sweep.folder)]).show()
    texts = [(sweep.folder / f"comparison.{suffix}").read_text() for suffix in ("md", "html")]
    assert all("3 jobs ran at the same time" in text for text in (capsys.readouterr().out, *texts))


def test_a_page_reloads_until_its_sweep_has_ended(sweep: Sweep, monkeypatch: pytest.MonkeyPatch):
    sweep.job("parallel=single", seconds=2.0)
    job = sweep.job("parallel=ddp", state="running")
    pages = []

    def end(_: float) -> None:
        pages.append((sweep.folder / "comparison.html").read_text())
        if len(pages) == 2:
            assert sweep.ledger is not None
            entry = sweep.ledger.entries()[-1]
            sweep.ledger.write(entry.now("failed", reason="rank 0 failed first"))
            lock.close()

    lock = ExitStack()
    assert sweep.ledger is not None
    lock.enter_context(sweep.ledger.locked())
    monkeypatch.setattr(write_report.time, "sleep", end)
    report([str(sweep.folder)], is_watched=True)
    assert [page.count('http-equiv="refresh"') for page in pages] == [1, 1]
    assert 'http-equiv="refresh"' not in (sweep.folder / "comparison.html").read_text()
    assert job.is_dir()
