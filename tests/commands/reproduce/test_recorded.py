import json
import shutil

import pytest

from manyheads.runner.commands.reproduce.recorded import read_past
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.provenance.provenance import FORMAT
from manyheads.runner.run.run_folder import RunFolder


@pytest.fixture
def run(finished_run, tmp_path):
    shutil.copytree(finished_run.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_finished_run_is_read(run):
    past = read_past(run.path)
    assert past.result["steps"] == 2
    assert [*past.steps["step"]] == [1, 2]
    assert past.config["trainer"]["max_steps"] == 2


def test_a_moved_one_too(run):
    run.path.rename(run.path.with_name("moved"))
    assert read_past(run.path.with_name("moved")).result["status"] == "completed"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: shutil.rmtree(run.path), "is not a folder"),
        (lambda run: run.config.unlink(), "holds no run"),
        (lambda run: run.config.write_text("format: 2\nseed: 1"), "is not a run config: it lacks model, data"),
        (lambda run: (run.path / "ledger.jsonl").write_text("{}\n"), "is a sweep. Name one of its runs"),
        (lambda run: run.provenance.unlink(), "was never started"),
        (lambda run: run.provenance.write_text("{"), "cannot be read"),
        (lambda run: edit(run.provenance, format=FORMAT + 1), "written by a newer version"),
        (lambda run: edit(run.provenance, format="x"), "written by a newer version"),
        (lambda run: run.result.unlink(), "has not ended.* python -m runner resume"),
        (lambda run: run.result.write_text("[]"), "cannot be read"),
        (lambda run: edit(run.result, status="failed"), "is not complete: failed after 2 steps"),
        (lambda run: edit(run.result, status="interrupted"), "python -m runner resume"),
        (lambda run: edit(run.result, files=None), "has no digests"),
    ],
)
def test_what_is_no_finished_run_is_refused(run, damage, message):
    damage(run)
    with pytest.raises(ConfigurationError, match=message):
        read_past(run.path)


@pytest.mark.parametrize("name", ["run.yaml", "provenance.json", "steps.csv", "epochs.csv"])
def test_an_edited_file_is_named(run, name):
    (run.path / name).write_text((run.path / name).read_text() + "\n")
    with pytest.raises(ConfigurationError, match=rf"was edited after it ended \({name};"):
        read_past(run.path)


def test_a_missing_or_added_file_is_named(run):
    run.steps.unlink()
    run.code_diff.unlink(missing_ok=True)
    run.code_diff.write_text("+ something")
    with pytest.raises(ConfigurationError, match=r"steps.csv is missing"):
        read_past(run.path)
