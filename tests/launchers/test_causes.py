"""Which rank had not come to the collective operation at which the others waited."""

import pytest

from manyheads.launchers.causes import first_failure, ranks_in_words, refusal_of, waited_for
from manyheads.launchers.job import Job
from manyheads.runner.errors import ConfigurationError, Failure, Kind
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder

TIMEOUT = Failure(rank=0, type="RuntimeError", message="Timed out waiting 5000ms for recv operation to complete")


@pytest.mark.parametrize(
    ("come", "failure", "said"),
    [
        ([7, 7, 6], TIMEOUT, " Rank 2 had not reached collective operation 7, at which ranks 0 and 1 waited."),
        ([7, 6, 5], TIMEOUT, " Rank 1 and rank 2 had not reached collective operation 7, at which rank 0 waited."),
        ([7, 7, 7], TIMEOUT, ""),  # all are in it
        ([7, 7, 0], TIMEOUT, ""),  # one does not count
        ([0, 0, 0], TIMEOUT, ""),
        ([7, 7, 6], Failure(rank=2, type="ArithmeticError", message="made to fail"), ""),
        ([7, 7, 6], Failure(Kind.STALLED, message="no rank made a step"), " Rank 2 had not reached collective"),
    ],
)
def test_who_is_late(tmp_path, come, failure, said):
    heartbeat = Heartbeat(None, ranks=3)
    for rank, number in enumerate(come):
        heartbeat.write(rank, [1, 1, 4242, number])
    text = waited_for(Job(RunFolder(tmp_path), 3, {}, heartbeat, []), failure)
    assert text.startswith(said)
    assert bool(text) == bool(said)
    assert heartbeat.pid(0) == 0  # which is a process of another machine


def test_a_list_of_many_ranks_is_cut():
    assert ranks_in_words(["a"]) == "a"
    assert ranks_in_words(["a", "b"]) == "a and b"
    assert ranks_in_words(list(map(str, range(12)))) == "0, 1, 2, 3, 4, 5, 6 and 5 more"


def test_a_rank_that_could_not_open_its_heartbeat_failed_for_that_reason(tmp_path):
    heartbeat = Heartbeat.create(tmp_path / "heartbeat", ranks=2)
    job = Job(RunFolder(tmp_path), 2, {}, heartbeat, [])
    assert first_failure(job, {1: 1}, [1]).kind is Kind.PROCESS_DIED
    (tmp_path / "heartbeat").unlink()
    failure = first_failure(job, {1: 1}, [1])
    assert (failure.rank, failure.exit_code, failure.type) == (1, 1, "FileNotFoundError")
    assert str(tmp_path / "heartbeat") in failure.message
    assert first_failure(job, {1: -9}, [1]).kind is Kind.PROCESS_DIED  # whatever has killed it


class TestWhatACheckFound:
    def test_a_mistake_refuses_the_run(self):
        found = refusal_of(Failure.of(ConfigurationError("no such key", key="model.width")))
        assert (str(found), found.key) == ("no such key", "model.width")

    def test_a_fault_of_the_check_is_printed_and_refuses_nothing(self, capsys):
        with pytest.raises(TypeError) as fault:
            raise TypeError("takes 0 arguments")
        assert refusal_of(Failure.of(fault.value)) is None
        assert "could not be checked:\nTraceback" in (printed := capsys.readouterr().err)
        assert "test_causes.py" in printed
        assert printed.endswith("TypeError: takes 0 arguments\n")
        assert refusal_of(None) is None
