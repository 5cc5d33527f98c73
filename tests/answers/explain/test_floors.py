"""The parts of an update alone: in a rank of the test's own process, and by the real command on two ranks."""

import json
import sys
import time
from contextlib import closing

import pytest
from jsonschema import Draft202012Validator

from manyheads.runner.answers.measure.rank import floors
from manyheads.runner.answers.measure.rank.parts import UpdateParts
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.option.run_config import RunConfig
from tests.conftest import FAST, execute
from tests.in_process import attempt, small, weights

PARTS = {"update", "loader", "batch", "passes", "optimizer"}


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.setattr(floors, "SECONDS", 0.0)
    config = small("trainer.evaluate_every=0", "checkpoint.every=0")
    session = attempt(tmp_path, config)
    with closing(session.trainer):
        yield UpdateParts(floors.endless(session.trainer), RunConfig.of(config))


def test_each_part_is_measured_in_each_round(parts):
    found = floors.measured(parts.known(), parts.trainer)
    assert found.keys() == PARTS
    assert all(len(rounds) == floors.ROUNDS and min(rounds) > 0 for rounds in found.values())


def test_updates_are_those_of_the_training_loop_however_short_its_epochs_are(parts):
    before = parts.trainer.progress.step
    assert parts.updates(50) > 0
    assert parts.trainer.progress.step == before + 1 + 50
    assert parts.trainer.train.updates < 50


def test_what_is_repeated_alone_changes_no_weights(parts):
    before, known = weights(parts.trainer), parts.known()
    known["passes"](3)
    known["optimizer"](3)
    assert all(bool((value == before[name]).all()) for name, value in weights(parts.trainer).items())
    assert all(parameter.grad is None for parameter in parts.update.parameters)


def test_only_what_loads_waits_for_batches(parts, monkeypatch):
    fetch, fetched = parts.trainer.train.batches.fetch, []
    monkeypatch.setattr(
        parts.trainer.train.batches, "fetch", lambda request: (fetched.append(time.sleep(0.02)), fetch(request))[1]
    )
    known = parts.known()
    for name in PARTS - {"update", "loader"}:
        known[name](3)
    assert not fetched
    assert known["loader"](3) > 3 * 0.02
    assert known["update"](3) > 3 * 0.02


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.tail
@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "zero1"])
def test_ranks_repeat_their_exchanges(tmp_path, parallel):
    words = ("explain", *FAST, f"parallel={parallel}", "launcher.nproc_per_node=2", "--picture", "a.png", "--json")
    done = execute(sys.executable, "-m", "manyheads.runner", *words, cwd=tmp_path, timeout=200)
    assert done.code == 0, done.out + done.err
    reply = json.loads(done.out)
    assert [*Draft202012Validator(schema_of_command("explain")).iter_errors(reply)] == []
    found = reply["result"]
    assert found["ranks"] == 2
    assert found["seconds"].keys() == (PARTS | {"exchange"}) - ({"passes"} if parallel == "fsdp" else set())
    assert found["seconds"]["exchange"]["low"] > 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
