"""Where the time goes."""

import torch

from manyheads.runner.loop.clock import WARMUP_UPDATES, Clock

CPU = torch.device("cpu")


def test_laps_are_the_seconds_between_them(now):
    timed = Clock(CPU)
    now[0] += 3
    assert timed.lap() == (3, 0, 0, False)
    now[0] += 2
    assert timed.lap() == (2, 0, 0, False)


def test_evaluation_is_left_out_by_resume(now):
    timed = Clock(CPU)
    now[0] += 50
    timed.resume()
    now[0] += 2
    assert timed.lap().seconds == 2


def test_waiting_is_noted_and_work_is_not(now):
    def items():
        for number in range(3):
            now[0] += 0.25
            yield number

    timed, seen = Clock(CPU), []
    for item in timed.waiting(items()):
        seen.append(item)
        now[0] += 1
    assert seen == [0, 1, 2]
    assert timed.lap() == (3.75, 0.75, 0, False)
    assert timed.lap() == (0, 0, 0, False)


def test_logging_lies_in_the_lap_that_it_begins(now):
    timed = Clock(CPU)
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


def test_a_lap_that_began_while_the_model_was_being_compiled_does_not_count(now):
    timed, warm = Clock(CPU), []
    for number, _ in enumerate(timed.waiting(range(30)), 1):
        if number % 10 == 0:
            warm.append(timed.lap().is_warm)
    assert warm == [False, True, True]


def test_the_first_updates_do_not_count_for_the_throughput(now):
    timed, warm = Clock(CPU), []
    for _ in timed.waiting(range(WARMUP_UPDATES + 2)):
        warm.append(timed.lap().is_warm)
    assert warm == [False] * WARMUP_UPDATES + [True] * 2
