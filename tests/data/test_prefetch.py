"""Bringing batches to the GPU ahead: the order of events, with a stand-in for torch.cuda that notes them."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.prefetch import pinned, prefetch

DEVICE = torch.device("cuda", 0)


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


class OnGPU(torch.Tensor):
    """A tensor there."""

    log: list
    label: str

    @staticmethod
    def called(log: list, label: str) -> "OnGPU":
        made = torch.zeros(1).as_subclass(OnGPU)
        made.log, made.label = log, label
        return made

    def record_stream(self, stream: Stream) -> None:
        self.log.append((self.label, "is used on", stream.name))


@pytest.fixture
def log(monkeypatch) -> list:
    """torch.cuda's streams and their events; the current stream is ``main`` unless another was chosen."""
    found: list = []
    current = [Stream(found, "main")]

    @contextmanager
    def chosen(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr("manyheads.runner.data.rank.prefetch.side_stream", lambda device: Stream(found, "side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current[-1])
    monkeypatch.setattr(torch.cuda, "stream", chosen)
    return found


def batch(number: int) -> Batch:
    return Batch({"number": torch.tensor([number])}, 1, 1.0)


def enter(log: list):
    def enter(each: Batch) -> Batch:
        number = int(each.content["number"])
        log.append((torch.cuda.current_stream().name, "enters", number))
        each.content = (OnGPU.called(log, f"content {number}"), ["kept as it is"])
        each.inputs = {"inputs": OnGPU.called(log, f"inputs {number}")}
        return each

    return enter


def test_each_batch_is_waited_for_and_kept_until_the_current_stream_is_done_with_it(log):
    for number, each in enumerate(prefetch(map(batch, range(3)), enter(log), DEVICE)):
        assert each.inputs["inputs"].label == f"inputs {number}"
        log.append(("main", "trains on", number))
    assert log[0] == ("side", "waits for", "main")
    for number in range(3):
        order = [
            ("side", "enters", number),
            ("side", "records", f"event {number + 1} of side"),
            ("main", "waits for", f"event {number + 1} of side"),
            (f"content {number}", "is used on", "main"),
            (f"inputs {number}", "is used on", "main"),
            ("main", "trains on", number),
        ]
        assert sorted(order, key=log.index) == order
    assert len(log) == 1 + 3 * 6


def test_the_next_one_enters_while_one_is_trained_on(log):
    batches = prefetch(map(batch, range(5)), enter(log), DEVICE)
    for number in range(4):
        next(batches)
        entered = [each for _, verb, each in log if verb == "enters"]
        assert entered == list(range(number + 2))  # one ahead, and no more


def test_errors_of_loading_and_of_entering_come_to_the_loop(log):
    def failing(each: Batch) -> Batch:
        if int(each.content["number"]) == 1:
            raise torch.OutOfMemoryError("full")
        return enter(log)(each)

    found = []
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        found.extend(prefetch(map(batch, range(3)), failing, DEVICE))
    with pytest.raises(ZeroDivisionError):
        list(prefetch((batch(1 // number) for number in range(2)), enter(log), DEVICE))


def test_no_batch_at_all(log):
    assert list(prefetch(iter(()), enter(log), DEVICE)) == []


def test_batches_are_pinned_in_a_thread_and_their_own_memory_is_given_back(monkeypatch):
    threads, devices, own = [], [], []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        threads.append(threading.current_thread())
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)

    def loaded() -> Iterator[Batch]:
        for number in range(4):
            each = batch(number)
            own.append(weakref.ref(each.content["number"]))
            yield each

    found = [int(each.content["number"]) for each in pinned(loaded(), DEVICE)]
    assert found == [0, 1, 2, 3]
    assert not any(each() is not None for each in own)
    assert {*devices} == {DEVICE}
    assert len({*threads}) == 1
    assert not threads[0].is_alive()
    assert threading.main_thread() not in threads


def test_the_thread_copies_alone_and_others_keep_theirs(monkeypatch):
    counts = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        counts.append(torch.get_num_threads())
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for _ in pinned(map(batch, range(2)), DEVICE):
            counts.append(torch.get_num_threads())
            later = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
            later.start()
            later.join()
    finally:
        torch.set_num_threads(before)
    assert sorted(counts) == [1, 1, 3, 3, 3, 3]


def test_errors_of_loading_come_through_the_thread(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    with pytest.raises(ZeroDivisionError):
        list(pinned((batch(1 // number) for number in range(2)), DEVICE))
    assert list(pinned(iter(()), DEVICE)) == []
