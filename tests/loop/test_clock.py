"""Where the time goes."""

import torch

from manyheads.runner.loop.clock import WARMUP_UPDATES, Clock, DeviceClock


def test_laps_are_the_seconds_between_them(now):
    timed = Clock()
    now[0] += 3
    assert timed.lap() == (3, 0, 0, False)
    now[0] += 2
    assert timed.lap() == (2, 0, 0, False)


def test_evaluation_is_left_out_by_resume(now):
    timed = Clock()
    now[0] += 50
    timed.resume()
    now[0] += 2
    assert timed.lap().seconds == 2


def test_waiting_is_noted_and_work_is_not(now):
    def items():
        for number in range(3):
            now[0] += 0.25
            yield number

    timed, seen = Clock(), []
    for item in timed.waiting(items()):
        seen.append(item)
        now[0] += 1
    assert seen == [0, 1, 2]
    assert timed.lap() == (3.75, 0.75, 0, False)
    assert timed.lap() == (0, 0, 0, False)


def test_logging_lies_in_the_lap_that_it_begins(now):
    timed = Clock()
    now[0] += 1
    assert timed.lap() == (1, 0, 0, False)
    now[0] += 0.5
    timed.logged()
    now[0] += 1
    assert timed.lap() == (1.5, 0, 0.5, False)
    now[0] += 0.5
    timed.logged()
    timed.resume()
    now[0] += 1
    assert timed.lap() == (1, 0, 0, False)


def test_an_exchange_between_updates_of_a_lap_takes_none_of_their_time(now):
    timed = Clock()
    updates = timed.waiting(range(3))
    next(updates)
    timed.lap()
    now[0] += 0.5
    timed.logged()
    next(updates)
    now[0] += 4  # an update, after which ranks exchange only whether to stop
    timed.logged()
    next(updates)
    now[0] += 4
    assert timed.lap() == (8.5, 0, 0.5, False)


def test_a_lap_that_began_while_the_model_was_being_compiled_does_not_count(now):
    timed, warm = Clock(), []
    for number, _ in enumerate(timed.waiting(range(30)), 1):
        if number % 10 == 0:
            warm.append(timed.lap().is_warm)
    assert warm == [False, True, True]


def test_the_first_updates_do_not_count_for_the_throughput(now):
    timed, warm = Clock(), []
    for _ in timed.waiting(range(WARMUP_UPDATES + 2)):
        warm.append(timed.lap().is_warm)
    assert warm == [False] * WARMUP_UPDATES + [True] * 2


class Device:
    """A GPU's stream, by the hand-wound time of ``now``: events are recorded when it has done what came before them."""

    def __init__(self, now, monkeypatch):
        self.now, self.free_at = now, 0.0
        device = self

        class Event:
            def __init__(self, *, enable_timing):
                assert enable_timing

            def record(self):
                self.at = max(device.now[0], device.free_at)

            def synchronize(self):
                device.now[0] = max(device.now[0], self.at)

            def elapsed_time(self, later):
                return 1000 * (later.at - self.at)

        monkeypatch.setattr(torch.cuda, "Event", Event)

    def work(self, seconds):
        """Queued, which takes the host no time."""
        self.free_at = max(self.now[0], self.free_at) + seconds


def test_a_gpu_s_lap_is_its_own_time_and_nobody_waits_for_it(now, monkeypatch):
    gpu = Device(now, monkeypatch)
    timed, start = DeviceClock(), now[0]
    for _ in timed.waiting(range(4)):
        gpu.work(3)
    lap = timed.lap()
    assert now[0] == start
    assert lap.finished() == (12, 0, 0, False)
    assert now[0] == start + 12


def test_a_wait_for_data_counts_only_while_the_gpu_has_nothing_to_do(now, monkeypatch):
    gpu = Device(now, monkeypatch)
    timed = DeviceClock()

    def items():
        for seconds in (1, 2, 5):  # nothing to do yet; hidden behind 3 s of work; 2 s more than the work that is left
            now[0] += seconds
            yield seconds

    for _ in timed.waiting(items()):
        gpu.work(3)
    assert timed.lap().finished() == (1 + 3 + 3 + 1 + 3, 1 + 1, 0, False)


def test_on_a_gpu_logging_lies_in_the_lap_that_it_begins_and_evaluation_in_none(now, monkeypatch):
    gpu = Device(now, monkeypatch)
    timed = DeviceClock()
    gpu.work(2)
    timed.lap().finished()
    now[0] += 0.5
    timed.logged()
    gpu.work(2)
    assert timed.lap().finished() == (2.5, 0, 0.5, False)
    now[0] += 50
    timed.resume()
    gpu.work(1)
    assert timed.lap().finished() == (1, 0, 0, False)
