"""What a tracker is told of a run folder: everything, once, whatever happens in between."""

import io
import json
import shutil

import pytest
from PIL import Image

from manyheads.launchers.companions.publishing.points import Tables
from manyheads.launchers.companions.publishing.publish_state import PublishState, one_publisher, state_file
from manyheads.launchers.companions.publishing.publisher import Publisher
from manyheads.launchers.companions.publishing.tracked_run import outcome, tracked_run
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.pictures import with_step
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.columns import evaluation_columns
from tests.callbacks.tracking import Kept, curve, only, runs
from tests.in_process import rows


def publish(folder: RunFolder, place, **options) -> None:
    Publisher(folder, "kept", Kept(place=str(place), **options)).finish()


def cut(path, rows: int) -> str:
    """Keep so many rows of a table; returns what it was."""
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[: rows + 1]))
    return text


def test_a_run_is_there_as_its_tables_say(finished, place):
    publish(finished, place)
    table = rows(finished.steps)
    assert [row["step"] for row in table] == ["8", "16", "20", "24", "32", "40"]
    assert curve(place, "train/loss") == [(int(row["step"]), float(row["loss"])) for row in table]
    times = {each["step"]: each["time"] for each in only(place, "point")}
    assert times == {int(row["step"]): float(row["time"]) for row in table}
    epochs = [(int(row["step"]), float(row["val_acc1"])) for row in rows(finished.epochs)]
    assert curve(place, "epoch/val_acc1") == epochs
    assert [step for step, _ in curve(place, "seconds/compute")] == [20, 40]
    assert [step for step, _ in curve(place, "memory/peak_mb")] == [20, 40]
    (opened,), (closed,) = only(place, "open"), only(place, "close")
    assert (opened["run"], opened["tags"], opened["group"]) == ("first", ["a", "b"], None)
    result = finished.read_result()
    assert (closed["status"], closed["error"], closed["step"]) == ("completed", None, 40)
    assert closed["values"]["best/objective"] == result["objective"]
    assert {each["name"] for each in only(place, "file")} >= {"run.yaml", "steps.csv", "result.json", "provenance.json"}


def test_the_id_moves_with_the_folder(finished, place, tmp_path):
    publish(finished, place)
    shutil.copytree(finished.path, tmp_path / "elsewhere")
    publish(RunFolder(tmp_path / "elsewhere"), place)
    assert [path.name for path in runs(place)] == [json.loads(finished.provenance.read_text())["id"]]


def test_publishing_again_sends_nothing_twice(finished, place):
    publish(finished, place)
    first = len(only(place, "point")), len(only(place, "file"))
    publish(finished, place)
    assert (len(only(place, "point")), len(only(place, "file"))) == first
    assert [each["status"] for each in only(place, "close")] == ["completed", "completed"]


def test_without_its_state_the_same_is_sent_to_the_bit(finished, place):
    publish(finished, place)
    shutil.rmtree(finished.path / "trackers")
    publish(finished, place)
    points = only(place, "point")
    assert points[: len(points) // 2] == points[len(points) // 2 :]


def test_a_tracker_that_says_how_far_it_is_gets_the_rest(finished, place):
    whole = cut(finished.steps, 3)
    publish(finished, place, remembers=True)
    shutil.rmtree(finished.path / "trackers")
    finished.steps.write_text(whole)
    publish(finished, place, remembers=True)
    assert [step for step, _ in curve(place, "train/loss")] == [8, 16, 20, 24, 32, 40]


def test_rows_are_published_as_they_come_and_half_a_line_is_none(finished, place):
    publisher = Publisher(finished, "kept", Kept(place=str(place)))
    epochs, steps = cut(finished.epochs, 0), cut(finished.steps, 2)
    finished.steps.write_text(finished.steps.read_text() + "1,20,9")
    publisher.catch_up()
    assert [step for step, _ in curve(place, "train/loss")] == [8, 16]
    finished.epochs.write_text(epochs)  # whose first row is of step 20, which has not been seen
    publisher.catch_up()
    assert curve(place, "epoch/val_loss") == []
    finished.steps.write_text(steps)
    publisher.finish()
    assert [each["step"] for each in only(place, "point")] == [8, 16, 20, 20, 24, 32, 40, 40]
    assert [step for step, _ in curve(place, "epoch/val_loss")] == [20, 40]


def test_a_table_that_is_cut_and_written_again_has_each_step_once(finished, place):
    """As by a resume, whose rows have other times."""
    publisher = Publisher(finished, "kept", Kept(place=str(place)))
    publisher.catch_up()
    text = finished.steps.read_text()
    again = [line.rsplit(",", 1)[0] + ",2000000000.0\n" for line in text.splitlines()[4:]]
    more = "3,48," + again[-1].split(",", 2)[2]
    finished.steps.write_text("".join(text.splitlines(keepends=True)[:4]) + "".join([*again, more]))
    publisher.finish()
    assert [step for step, _ in curve(place, "train/loss")] == [8, 16, 20, 24, 32, 40, 48]


def test_what_a_tracker_missed_it_gets_later(finished, place, monkeypatch):
    monkeypatch.setenv("TRACKER_TOKEN", "hush-hush-hush")
    publisher = Publisher(finished, "kept", Kept(place=str(place)))
    whole = cut(finished.steps, 2)
    publisher.catch_up()
    finished.steps.write_text(whole)
    (place / "away").touch()
    with pytest.raises(ConnectionError):
        publisher.finish()
    state = state_file(finished, "kept").read_text()
    assert "ConnectionError: http://***@tracker cannot be reached" in state
    assert "hush" not in state
    (place / "away").unlink()
    publish(finished, place)  # as another process would
    assert [step for step, _ in curve(place, "train/loss")] == [8, 16, 20, 24, 32, 40]
    assert PublishState.read(state_file(finished, "kept")).error is None


@pytest.mark.parametrize(
    ("result", "status", "error"),
    [
        ({"status": "failed", "error": {"message": "out of memory"}}, "failed", "out of memory"),
        ({"status": "interrupted", "error": None}, "interrupted", None),
        (None, "failed", "its process was killed"),
    ],
)
def test_the_status_is_what_became_of_the_run(finished, place, result, status, error):
    finished.result.unlink()
    if result:
        finished.write_json(finished.result, result)
    publish(finished, place)
    (closed,) = only(place, "close")
    assert (closed["status"], closed["error"]) == (status, error)


def test_a_run_that_is_worked_on_is_running(finished):
    finished.result.unlink()
    with finished.locked():
        assert outcome(finished, step=1, time=1.0).status == "running"


def test_a_job_belongs_to_its_sweep(finished, tmp_path, place):
    ledger = Ledger(tmp_path)
    ledger.create({}, Entry(0, "run", ["seed=1"], state="completed"), Entry(1, "other", ["seed=2"]))
    publish(finished, place)
    (key, *overrides) = only(place, "open")[0]["group"]
    assert overrides == ["seed=1"]
    ledger.write(Entry(1, "other", ["seed=2"], state="failed"))
    assert tracked_run(finished).group.key == key


def test_a_run_without_an_id_is_refused(finished):
    provenance = json.loads(finished.provenance.read_text())
    finished.write_json(finished.provenance, {key: value for key, value in provenance.items() if key != "id"})
    with pytest.raises(ConfigurationError, match=r"provenance\.json has no id"):
        tracked_run(finished)


def test_loads_of_gpus_and_host_go_with_the_rows_of_their_time(finished):
    first, second, *_ = (float(row["time"]) for row in rows(finished.steps))
    samples = [(first - 2, 0, 10), (first - 1, 0, 30), (first - 1, 1, 5), (second, 0, 80)]
    finished.gpu.write_text(
        "time,device,utilisation_percent,memory_used_mb,memory_total_mb\n"
        + "".join(f"{time},{device},{load},100,1000\n" for time, device, load in samples)
    )
    finished.host.write_text(f"time,cpu_percent,disk_read_mb_per_second\n{first - 2},50,\n{first - 1},100,\n")
    found = [row.point.values for row in Tables(finished).rows()]
    assert found[0]["system/cpu_percent"] == 75
    assert "system/disk_read_mb_per_second" not in found[0]  # which the machine does not tell
    assert found[0]["system/gpu0_utilisation_percent"] == 20
    assert found[0]["system/gpu1_utilisation_percent"] == 5
    assert found[1]["system/gpu0_utilisation_percent"] == 80
    assert not any(tag.startswith("system/") for tag in found[2])


def test_two_do_not_publish_one_run_at_once(finished):
    with one_publisher(finished, "kept"):
        message = "publishing .* to kept is being run by another process"
        with pytest.raises(ConfigurationError, match=message), one_publisher(finished, "kept"):
            pass
        with one_publisher(finished, "other"):
            pass


def test_what_never_ran_cannot_be_published(tmp_path, finished):
    finished.provenance.unlink()
    with pytest.raises(ConfigurationError, match="never started"):
        tracked_run(finished)


def test_pictures_are_shown_once_when_the_points_of_their_step_are(finished, place):
    def draw(name: str, shade: int, step: int) -> None:
        file = io.BytesIO()
        Image.new("L", (2, 2), shade).save(file, format="png")
        write_whole(finished.pictures / name, with_step(file.getvalue(), step))

    finished.pictures.mkdir()
    whole = cut(finished.steps, 2)
    (finished.pictures / "other.png").write_bytes(b"text")
    draw("faces.png", 0, 16)
    draw("late.png", 0, 40)
    (finished.pictures / "link.png").symlink_to(finished.pictures / "faces.png")
    publisher = Publisher(finished, "kept", Kept(place=str(place)))
    for shade in (0, 0, 7):
        draw("faces.png", shade, 16)
        publisher.catch_up()
    finished.steps.write_text(whole)
    draw("faces.png", 9, 20)
    publisher.finish()
    publish(finished, place)
    shown = [(each["name"], each["step"]) for each in only(place, "picture")]
    assert shown == [("faces", 16), ("faces", 16), ("faces", 20), ("late", 40)]


def test_evaluations_within_epochs_are_points_of_the_same_curves(finished, place):
    columns = evaluation_columns(["val_loss", "val_acc1"])
    measured = {**dict.fromkeys(columns, 1), "time": 1.0, "val_loss": 0.5, "val_acc1": 91.0}
    written = [{**measured, "epoch": 1, "step": 16}, {**measured, "epoch": 2, "step": 32, "val_acc1": 92.0}]
    lines = [columns, *([row[name] for name in columns] for row in written)]
    finished.evaluations.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    publish(finished, place)
    ends = {int(row["step"]): float(row["val_acc1"]) for row in rows(finished.epochs)}
    assert curve(place, "epoch/val_acc1") == [(16, 91.0), (20, ends[20]), (32, 92.0), (40, ends[40])]
    publish(finished, place)
    assert len(curve(place, "epoch/val_acc1")) == 4
