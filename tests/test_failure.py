"""One record of what failed, from the rank that saw it to result.json."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed, Unavailable, WrongValue, report

JSON = {
    "kind": "ProcessDied",
    "rank": 1,
    "exit_code": -9,
    "type": "ProcessDied",
    "message": "killed",
    "traceback": "Traceback ...\n",
}
DIED = Failure(Kind.PROCESS_DIED, rank=1, exit_code=-9, message="killed", traceback="Traceback ...\n")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (DIED, "rank 1 failed first (exit code -9): ProcessDied: killed"),
        (Failure(rank=0, type="OSError", message="disk full"), "rank 0 failed first: OSError: disk full"),
        (Failure(Kind.TIMED_OUT, message="too long"), "the run failed: TimedOut: too long"),
        (Failure(exit_code=0, type="A", message="b"), "the run failed (exit code 0): A: b"),
    ],
)
def test_in_words(failure, text):
    assert failure.describe() == text


def test_as_json_its_keys_are_in_this_order():
    assert json.dumps(DIED.to_json()) == json.dumps(JSON)
    assert Failure(type="A", message="b").to_json() == {
        "kind": "Raised",
        "rank": None,
        "exit_code": None,
        "type": "A",
        "message": "b",
        "traceback": "",
    }


def test_it_survives_json_and_pickle():
    assert Failure.from_json(json.loads(json.dumps(DIED.to_json()))) == DIED
    assert pickle.loads(pickle.dumps(DIED)) == DIED


@pytest.mark.parametrize("value", ["resnet5", 3, None, [1, "a"], {"a": 1.5}])
def test_of_a_mistake_it_has_key_value_and_what_is_allowed(value):
    found = Failure.of(WrongValue("No.", key="model.name", value=value, allowed=("a", 1)), rank=1)
    assert (found.kind, found.type, found.key, found.value) == (Kind.MISTAKE, "WrongValue", "model.name", value)
    assert found.allowed == ("a", 1)
    assert Failure.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert ("value" in found.to_json()) is (value is not None)


def test_a_value_that_json_lacks_is_a_text():
    found = Failure.of(ConfigurationError("No.", key="data.root", value=Path("/x"), allowed=(Path("/y"),)))
    assert (found.value, found.allowed) == ("/x", ("/y",))


@pytest.mark.parametrize("allowed", [None, "a", {"a": 1}])
def test_what_is_allowed_is_a_list_or_unknown(allowed):
    assert Failure.from_json({**JSON, "key": 3, "allowed": allowed}) == DIED


def test_what_else_is_in_the_file_is_passed_over():
    assert Failure.from_json({**JSON, "time": 1.0, "host": "vm"}) == DIED


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rank": "1"}, {"rank": None}),
        ({"rank": True}, {"rank": None}),
        ({"exit_code": "stop"}, {"exit_code": None}),
        ({"traceback": None}, {"traceback": ""}),
    ],
)
def test_a_value_of_the_wrong_kind_is_unknown(change, expected):
    assert Failure.from_json({**JSON, **change}) == replace(DIED, **expected)


@pytest.mark.parametrize(
    "content",
    [None, [], "torn", 3, {}, {"type": "A"}, {"message": "b"}, {**JSON, "type": None}, {**JSON, "message": 3}],
)
def test_what_is_no_failure_is_none(content):
    assert Failure.from_json(content) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("no"), 1),
        (SystemExit(7), 7),
        (SystemExit("no data"), 1),
        (SystemExit(), 1),
    ],
    ids=repr,
)
def test_of_an_exception(error, code):
    """A process ends with 1 where sys.exit is given a message; a rank that leaves in the middle did not succeed."""
    try:
        raise error
    except BaseException as caught:
        failure = Failure.of(caught, rank=2)
    assert (failure.rank, failure.exit_code, failure.type) == (2, code, type(error).__name__)
    assert failure.message == str(error)
    assert failure.traceback.startswith("Traceback (most recent call last)")
    assert "raise error" in failure.traceback


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no"), Kind.RAISED),
        (ConfigurationError("optimizer.lr: CUDA out of memory is no number"), Kind.MISTAKE),
        (Unavailable("no GPU"), Kind.MISTAKE),
        (FloatingPointError("the loss became nan"), Kind.DIVERGED),
        (torch.OutOfMemoryError("full"), Kind.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), Kind.OUT_OF_MEMORY),
        (RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1"), Kind.LOST_PEER),
        (type("ConfigurationError", (Exception,), {})("somebody else's"), Kind.RAISED),
        (type("Odd", (Exception,), {"kind": "Stalled"})("of a user's own"), Kind.RAISED),
    ],
    ids=repr,
)
def test_the_kind_of_an_exception(error, kind):
    assert Failure.of(error).kind is kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"kind": "Stalled", "type": "Stalled", "message": "m"}, Kind.STALLED),
        ({"type": "Stalled", "message": "m"}, Kind.RAISED),
        ({"kind": "Raised", "type": "Stalled", "message": "an exception with that name"}, Kind.RAISED),
        ({"kind": "of a later version", "type": "A", "message": "m"}, Kind.RAISED),
        ({"kind": ["Stalled"], "type": "A", "message": "m"}, Kind.RAISED),
    ],
)
def test_the_kind_in_a_file(content, kind):
    assert Failure.from_json(content).kind is kind


def test_a_loss_that_is_no_number_is_told_in_one_sentence(capsys):
    """Its traceback leads into this project's loop, and away from the keys to set."""
    for error, shows in ((FloatingPointError("the loss became nan"), False), (RuntimeError("the loss is odd"), True)):
        try:
            raise error
        except Exception as caught:
            report(RunFailed(Failure.of(caught, rank=0)))
        err = capsys.readouterr().err
        assert ("Traceback" in err) is shows
        assert err.count(str(error)) == 1 + shows
