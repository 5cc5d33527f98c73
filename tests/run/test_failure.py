"""One record of what failed, from the rank that saw it to result.json."""

import json
import pickle

import pytest

from manyheads.runner.run.failure import Failure

JSON = {"rank": 1, "exit_code": -9, "type": "ProcessDied", "message": "killed", "traceback": "Traceback ...\n"}


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure(**JSON), "rank 1 failed first (exit code -9): ProcessDied: killed"),
        (Failure(rank=0, type="OSError", message="disk full"), "rank 0 failed first: OSError: disk full"),
        (Failure(type="TimedOut", message="too long"), "the run failed: TimedOut: too long"),
        (Failure(exit_code=0, type="A", message="b"), "the run failed (exit code 0): A: b"),
    ],
)
def test_in_words(failure, text):
    assert failure.describe() == text


def test_as_json_its_keys_are_in_this_order():
    assert json.dumps(Failure(**JSON).to_json()) == json.dumps(JSON)
    assert Failure(type="A", message="b").to_json() == {
        "rank": None,
        "exit_code": None,
        "type": "A",
        "message": "b",
        "traceback": "",
    }


def test_it_survives_json_and_pickle():
    failure = Failure(**JSON)
    assert Failure.from_json(json.loads(json.dumps(failure.to_json()))) == failure
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_what_else_is_in_the_file_is_passed_over():
    assert Failure.from_json({**JSON, "time": 1.0, "host": "vm"}) == Failure(**JSON)


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
    assert Failure.from_json({**JSON, **change}) == Failure(**{**JSON, **expected})


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
