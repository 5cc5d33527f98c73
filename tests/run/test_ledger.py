import json
import multiprocessing

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.ledger import STATES, Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "sweep")
    ledger.create({"jobs": 2})
    return ledger


def entry(job=0, **changes):
    return Entry(**{"job": job, "folder": str(job), "overrides": [f"seed={job}"], **changes})


def test_the_last_entry_of_a_job_counts(ledger):
    ledger.write(entry(0), entry(1), entry(1, repeat=2))
    ledger.write(entry(1).now("running"))
    ledger.write(entry(1).now("completed", objective=3.5))
    assert [(e.job, e.repeat, e.state) for e in ledger.entries()] == [
        (0, 1, "pending"),
        (1, 1, "completed"),
        (1, 2, "pending"),
    ]
    assert ledger.entries()[1].objective == 3.5
    assert ledger.options() == {"jobs": 2}


def test_a_job_s_folder_is_named_from_the_sweep_s_through_links_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "outputs").symlink_to("scratch")
    assert Ledger("outputs/sweep").name_of(RunFolder("outputs/sweep/0").path) == "0"


def test_a_state_forgets_the_reason_of_the_one_before():
    failed = entry().now("failed", reason="no", out_of_memory=True)
    assert (failed.reason, failed.out_of_memory) == ("no", True)
    again = failed.now("running")
    assert (again.reason, again.out_of_memory, again.overrides) == (None, False, ["seed=0"])
    assert again.time >= failed.time


@pytest.mark.parametrize("left", range(1, 60, 7))
def test_a_line_that_was_cut_off_is_no_line(ledger, left):
    """The writer was killed in the middle of it."""
    ledger.write(entry(0))
    whole = ledger.path.read_bytes()
    ledger.write(entry(0).now("running"))
    ledger.path.write_bytes(ledger.path.read_bytes()[: len(whole) + left])
    assert [e.state for e in ledger.entries()] == ["pending"]
    ledger.write(entry(0).now("completed"), entry(1))
    assert [e.state for e in ledger.entries()] == ["completed", "pending"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{}\n{"foo": 1}\n', "cannot be read"),
        ("", "not a sweep.s ledger"),
        ("[1]\n", "not a sweep.s ledger"),
        ("{\n", "cannot be read"),
        ('{}\n"x\n', "cannot be read"),
    ],
)
def test_what_is_no_ledger(ledger, content, text):
    ledger.path.write_text(content)
    with pytest.raises(ConfigurationError, match=text):
        ledger.entries()


def test_a_folder_without_one(tmp_path):
    assert not Ledger(tmp_path).exists()
    with pytest.raises(ConfigurationError, match=r"it has no ledger\.jsonl"):
        Ledger(tmp_path).entries()


def test_keys_of_a_later_version_are_left_out(ledger):
    with open(ledger.path, "a") as file:
        file.write(json.dumps({"job": 3, "folder": "3", "overrides": [], "colour": "red"}) + "\n")
    assert ledger.entries()[0].job == 3


def hold(sweep, entered, leave):
    with Ledger(sweep).locked():
        entered.set()
        leave.wait(30)


def test_one_process_at_a_time(ledger):
    context = multiprocessing.get_context("spawn")
    entered, leave = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(ledger.sweep, entered, leave))
    assert not ledger.is_active()
    holder.start()
    assert entered.wait(30)
    assert ledger.is_active()
    with pytest.raises(ConfigurationError, match="is being run by another process"), ledger.locked():
        pass
    leave.set()
    holder.join()
    assert not ledger.is_active()


def test_every_state_has_a_name():
    assert entry().state in STATES
