"""Bringing batches to the GPU ahead: the order of events, with a stand-in for torch.cuda that notes them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from runner.data.ahead import ahead
from runner.data.batches import Batch

DEVICE = torch.device("cuda", 0)
pytestmark = pytest.mark.parametrize("waits", [True, False])


class Stream:
    """Notes what it is asked for in ``log``, under its name."""

    def __init__(self, log: list, name: str):
        self.log, self.name, self.events = log, name, 0

    def wait_stream(self, other: "Stream") -> None:
        self.log.append((self.name, "waits for", other.name))

    def record_event(self) -> str:
        self.events += 1
        event = f"event {self.events} of {self.name}"
        self.log.append((self.name, "records", event))
        return event

    def wait_event(self, event: str) -> None:
        self.log.append((self.name, "waits for", event))


class OnGPU:
    """A tensor there."""

    is_cuda = True

    def __init__(self, log: list, name: str):
        self.log, self.name = log, name

    def record_stream(self, stream: Stream) -> None:
        self.log.append((self.name, "is used on", stream.name))


@pytest.fixture
def log(monkeypatch) -> list:
    """torch.cuda's streams and their events; a thread's current stream is ``main`` unless it chose another."""
    found: list = []
    main, current = Stream(found, "main"), threading.local()

    @contextmanager
    def chosen(stream: Stream) -> Iterator[None]:
        current.stream = stream
        yield
        current.stream = main

    monkeypatch.setattr("runner.data.ahead.side_stream", lambda device: Stream(found, "side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: getattr(current, "stream", main))
    monkeypatch.setattr(torch.cuda, "stream", chosen)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: found.append(("thread", "uses", str(device))))
    return found


def batch(number: int) -> Batch:
    return Batch(torch.tensor([number]), torch.tensor([number]), 1, 1.0)


def enter(log: list):
    def enter(each: Batch) -> Batch:
        number = int(each.targets)
        log.append((torch.cuda.current_stream().name, "enters", number))
        each.inputs, each.targets = OnGPU(log, f"inputs {number}"), OnGPU(log, f"targets {number}")
        return each

    return enter


def test_each_batch_is_waited_for_and_kept_until_the_current_stream_is_done_with_it(log, waits):
    for number, each in enumerate(ahead(map(batch, range(3)), enter(log), DEVICE, waits=waits)):
        assert each.inputs.name == f"inputs {number}"
        log.append(("main", "trains on", number))
    assert log[0] == ("side", "waits for", "main")
    assert (("thread", "uses", "cuda:0") in log) is waits
    for number in range(3):
        order = [
            ("side", "enters", number),
            ("side", "records", f"event {number + 1} of side"),
            ("main", "waits for", f"event {number + 1} of side"),
            (f"inputs {number}", "is used on", "main"),
            (f"targets {number}", "is used on", "main"),
            ("main", "trains on", number),
        ]
        assert sorted(order, key=log.index) == order
    assert len(log) == 1 + waits + 3 * 6


def test_the_next_one_enters_while_one_is_trained_on(log, waits):
    entered = threading.Semaphore(0)

    def noting(each: Batch) -> Batch:
        entered.release()
        return each

    batches = ahead(map(batch, range(5)), noting, DEVICE, waits=waits)
    for number in range(4):
        next(batches)
        for _ in range(2 if number == 0 else 1):
            assert entered.acquire(timeout=20)
        assert not entered.acquire(blocking=False)  # one ahead, and no more


def test_a_batch_that_could_not_be_decoded_stays_where_it_is(log, waits):
    (each,) = ahead(map(batch, range(1)), lambda each: each, DEVICE, waits=waits)
    assert each.inputs.tolist() == [0]


def test_errors_of_both_threads_come_to_the_loop(log, waits):
    def failing(each: Batch) -> Batch:
        if int(each.targets) == 1:
            raise torch.OutOfMemoryError("full")
        return each

    found = []
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        found.extend(ahead(map(batch, range(3)), failing, DEVICE, waits=waits))
    with pytest.raises(ZeroDivisionError):
        list(ahead((batch(1 // number) for number in range(2)), enter(log), DEVICE, waits=waits))


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_no_thread_is_left_when_an_epoch_is_left_early(log, taken, waits):
    before = threading.active_count()
    batches = ahead(map(batch, range(4)), enter(log), DEVICE, waits=waits)
    for _ in range(taken):
        next(batches)
    batches.close()
    assert threading.active_count() == before


def test_no_batch_at_all(log, waits):
    assert list(ahead(iter(()), enter(log), DEVICE, waits=waits)) == []
