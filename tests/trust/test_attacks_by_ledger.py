"""A sweep that somebody sent: its ledger names folders, states and reasons; reports write beside it."""

import json
import os
from pathlib import Path

import pytest
import yaml

from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.trust.foreign import assert_refused, given, snapshot

pytestmark = pytest.mark.ci


@pytest.fixture
def sweep(here, config):
    """A sweep of one bad job, which no look would let pass. ``write``: with these values in its entry."""

    def write(*, options: object = None, folder: str = "0", **entry: object) -> Path:
        where = here / "sweep" / (folder if isinstance(folder, str) else "0")
        given(where, config | {"loss": {"_target_": "os.system"}})
        (here / "sweep").mkdir(exist_ok=True)
        lines = [
            {"options": {} if options is None else options},
            {"job": 0, "overrides": [], "folder": folder, **entry},
        ]
        (here / "sweep" / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return here / "sweep"

    return write


ENTRIES = {
    "a folder outside": ({"folder": "../elsewhere"}, "names a job outside it"),
    "one that is not by its text": ({"folder": "a/../../elsewhere"}, "names a job outside it"),
    "a folder that is a number": ({"folder": 7}, "cannot be read"),
    "overrides that are a text": ({"overrides": "x"}, "cannot be read"),
    "overrides that are numbers": ({"overrides": [1]}, "cannot be read"),
    "a state that is none": ({"state": "\x1b[2J"}, "cannot be read"),
    "a state that is a list": ({"state": []}, "cannot be read"),
    "a job that is a list": ({"job": []}, "cannot be read"),
    "repeats that are true": ({"repeat": True}, "cannot be read"),
    "a job below zero": ({"job": -1}, "cannot be read"),
    "a split into none": ({"split": 0}, "cannot be read"),
    "an objective that is a text": ({"objective": "x"}, "cannot be read"),
    "a time that is a text": ({"time": "x"}, "cannot be read"),
    "options that are a list": ({"options": []}, "cannot be read"),
    "jobs that are a text": ({"options": {"jobs": "many"}}, "hydra.launcher.jobs=many"),
    "a timeout that is a mapping": ({"options": {"timeout": {}}}, "hydra.launcher.timeout"),
    "a bad job": ({}, "loss._target_=os.system"),
}


@pytest.mark.parametrize("attack", ENTRIES)
def test_an_entry(resume_here, here, sweep, attack):
    change, message = ENTRIES[attack]
    sweep(**change)
    before = snapshot(here / "sweep")
    assert_refused(resume_here("sweep"), here, message)
    assert snapshot(here / "sweep") == before


LINES = {
    "no JSON": "x\n",
    "no lines": "",
    "a list": "[]\n[]\n",
    "nested lists": "[" * 100_000 + "\n",
    "a number of many digits": '{"options": {}}\n{"job": ' + "1" * 5000 + "}\n",
    "not a number": '{"options": {}}\n{"job": NaN, "folder": "0", "overrides": []}\n',
    "an entry without a folder": '{"options": {}}\n{"job": 0, "overrides": []}\n',
    "half a line": '{"options": {}',
}


@pytest.mark.parametrize("command", ["resume", "report"])
@pytest.mark.parametrize("attack", LINES)
def test_a_ledger_that_is_none(command_here, here, attack, command):
    (here / "sweep").mkdir()
    (here / "sweep" / "ledger.jsonl").write_text(LINES[attack])
    assert_refused(command_here(command, "sweep"), here)


def test_the_users_own_run_elsewhere_is_not_run_again(resume_here, here, sweep, config):
    """Though it is sealed, and unfinished."""
    own = RunFolder(here / "mine")
    own.write_config(config)
    folder = sweep()
    lines = [{"options": {}}, {"job": 0, "folder": str(own.path), "overrides": []}]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert_refused(resume_here("sweep"), here, "names a job outside it")
    assert not (own.path / "logs").exists()


@pytest.mark.parametrize("link", ["0", "0/run.yaml", "comparison.csv", "ledger.jsonl"])
def test_links_in_it(resume_here, here, sweep, config, link):
    folder = sweep()
    RunFolder(here / "mine").write_config(config)
    target = {"0": here / "mine", "0/run.yaml": here / "mine" / "run.yaml"}.get(link, here / "precious")
    if link == "ledger.jsonl":
        (folder / link).rename(target)
    elif not target.exists():
        target.write_text("mine")
    path = folder / link
    if path.is_dir():
        (path / "run.yaml").unlink()
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    assert_refused(resume_here("sweep"), here)
    assert not (here / "mine" / "logs").exists()


def test_a_config_that_can_only_be_resolved_later(resume_here, here, config, monkeypatch):
    """It could be frozen, and sealed, when its turn comes."""
    model = {"_target_": "${oc.env:WHAT}", "name": "custom", "num_classes": None, "pretrained": None}
    folder = here / "sweep"
    (folder / "0" / ".hydra").mkdir(parents=True)
    (folder / "0" / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config | {"model": model}))
    lines = [{"options": {}}, {"job": 0, "folder": "0", "overrides": []}]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert_refused(resume_here("sweep"), here, "cannot ask for environment variables")
    assert not (folder / "0" / "run.yaml").exists()


def test_one_that_cannot_be_resolved_is_looked_at_when_it_is_frozen(resume_here, here, config):
    model = {"_target_": "os.system", "name": "custom", "num_classes": None, "pretrained": "${missing}"}
    folder = here / "sweep"
    (folder / "0" / ".hydra").mkdir(parents=True)
    (folder / "0" / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config | {"model": model}))
    lines = [{"options": {}}, {"job": 0, "folder": "0", "overrides": []}]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = resume_here("sweep")
    assert done.code in (1, 2)
    assert "os.system" in done.err
    assert not (folder / "0" / "run.yaml").exists()


class TestAReport:
    """It shows what others have written, and writes beside it."""

    HOSTILE = '=HYPERLINK("http://evil","x")\x1b]0;owned\x07<script>alert(1)</script><a href=\'javascript:1\'>'

    @pytest.fixture
    def reported(self, command_here, here, config):
        folder = here / "sweep"
        for job in range(2):
            given(folder / str(job), config | {"seed": job})
            result = {"status": "completed", "steps": 2, "metrics": {"val_acc1": 50.0 + job}, "weights_sha256": "x"}
            (folder / str(job) / "result.json").write_text(json.dumps(result))
            provenance = {"host": self.HOSTILE, "command": self.HOSTILE, "devices": [self.HOSTILE]}
            (folder / str(job) / "provenance.json").write_text(json.dumps(provenance))
            rows = "epoch,step,train_loss,val_loss,val_acc1,train_seconds,started\n" + "1,1,1,1,1,1,1\n2,2,1,1,1,1,1\n"
            (folder / str(job) / "epochs.csv").write_text(rows)
            (folder / str(job) / "steps.csv").write_text("epoch,step,samples,loss\n1,1,1,1\n1,2,2,0.5\n")
        entries = [
            {"job": job, "folder": str(job), "signature": "x", "state": state, "reason": self.HOSTILE,
             "overrides": [f"+note={self.HOSTILE}{job}", f"=HYPERLINK()={job}"]}
            for job, state in enumerate(("completed", "completed"))
        ]  # fmt: skip
        lines = [{"options": {"jobs": self.HOSTILE}}, *entries]
        (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = command_here("report", "sweep")
        return folder, done

    def test_nothing_steers_the_terminal(self, reported):
        _, done = reported
        assert done.code == 0, done.err
        assert not {"\x1b", "\x07"} & set(done.out + done.err)

    def test_nothing_is_a_formula_or_a_script(self, reported):
        folder, _ = reported
        assert (folder / "comparison.csv").read_text().replace("\n", "").isprintable()
        cells = (folder / "comparison.csv").read_text().replace('"', "").replace("\n", ",").split(",")
        assert not [cell for cell in cells if cell.startswith(("=", "@"))]
        page = (folder / "comparison.html").read_text()
        assert "<script>alert(1)" not in page
        assert "<a href='javascript:1'>" not in page

    @pytest.mark.parametrize("name", ["comparison.csv", "comparison.html", "comparison.md", "comparison.png"])
    def test_through_a_link_nothing_is_written(self, reported, command_here, here, name):
        folder, _ = reported
        (here / "precious").write_text("mine")
        (folder / name).unlink()
        (folder / name).symlink_to(here / "precious")
        (folder / f".{name}.{os.getpid()}.aside").symlink_to(here / "precious")
        assert command_here("report", "sweep").code == 0
        assert (here / "precious").read_text() == "mine"

    def test_of_jobs_outside_nothing_is_told(self, command_here, here, config):
        """Their values would be in a file that the sweep's sender may read."""
        given(here / "mine", config | {"seed": 4711})
        (here / "sweep").mkdir()
        entry = {"job": 0, "folder": "../mine", "signature": "x", "state": "completed", "overrides": []}
        (here / "sweep" / "ledger.jsonl").write_text("".join(json.dumps(x) + "\n" for x in ({"options": {}}, entry)))
        command_here("report", "sweep")
        assert not any("4711" in path.read_text(errors="ignore") for path in (here / "sweep").iterdir())


def test_the_users_own_ledger_is_read_as_before(tmp_path):
    from manyheads.runner.run.ledger import Entry

    ledger = Ledger(tmp_path)
    entries = [Entry(0, "0", ["a=1"]), Entry(1, "1", [], 2, "s", "failed", "why\nnot", True, 4, 0.5)]
    ledger.create({"jobs": 1}, *entries)
    assert ledger.entries() == entries
