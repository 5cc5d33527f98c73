"""Observers are told in order, and cost nothing at points that they don't look at."""

from manyheads.runner.loop.observers.observer import Observer, overriding
from manyheads.runner.loop.progress import Progress
from tests.in_process import opened, small


class Noted(Observer):
    def __init__(self, notes: list[tuple[str, int]]):
        self.notes = notes

    def updated(self, progress, batches, result):
        self.notes.append(("updated", progress.step))

    def settled(self, progress):
        self.notes.append(("settled", progress.step))


def test_a_point_calls_only_those_that_override_it():
    notes: list[tuple[str, int]] = []
    observers = [Observer(), Noted(notes), Observer()]
    assert overriding(Observer.before_update, observers) == []
    (settled,) = overriding(Observer.settled, observers)
    settled(Progress(step=3))
    assert notes == [("settled", 3)]


def test_one_more_observer_is_told_of_each_update_while_it_is_there(tmp_path):
    notes: list[tuple[str, int]] = []
    with opened(tmp_path, small("trainer.max_steps=3", "trainer.epochs=null", "logger=[]")) as trainer:
        before = [*trainer.observers]
        with trainer.observed(Noted(notes)):
            trainer.fit(lambda **_: None, due_after_step=lambda step: False)
        assert trainer.observers == before
    assert notes == [("updated", 1), ("updated", 2), ("updated", 3), ("settled", 3)]
