"""Jobs to compare: a ledger names runs outside its sweep only if the user recorded both."""

import pytest

from manyheads.runner.records.run_set import gather
from manyheads.runner.run import seal
from manyheads.runner.run.ledger import EARLIER, Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.commands.run_folders import write_run

OUTSIDE = (None, "it lies outside the sweep")


@pytest.mark.parametrize(
    ("reason", "whose", "expected"),
    [
        (EARLIER, "mine", (90.0, EARLIER)),
        (EARLIER, "sweep of another", OUTSIDE),
        (EARLIER, "run of another", OUTSIDE),
        (None, "mine", OUTSIDE),
    ],
)
def test_an_earlier_run_of_a_sweep(tmp_path, reason, whose, expected):
    run = write_run(tmp_path / "one", acc=90.0)
    if whose != "run of another":
        seal.record(run.path, {"run.yaml": run.config.read_bytes()})
    ledger = Ledger(tmp_path / "sweep")
    ledger.create({}, Entry(0, "../one", ["seed=1"], signature="a", state="completed", reason=reason))
    if whose == "sweep of another":
        (ledger.sweep / seal.NAME).unlink()
    [job] = gather([str(ledger.sweep)]).jobs
    assert (job.run.result.get("metrics", {}).get("val_acc1"), job.reason) == expected
    assert RunFolder(ledger.sweep / "../one").is_own() == (whose != "run of another")
