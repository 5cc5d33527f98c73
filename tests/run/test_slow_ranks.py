"""Why a rank is slow, by counts that are made up; and that this machine can be asked for them."""

import pytest

from manyheads.runner.machine.hindrances import CoreTime, Hindrances, Segments
from manyheads.runner.run.slow_ranks import cause

CORES = CoreTime(cores=2, ready=0.1, throttled=0.0)
USUAL = Hindrances(CORES, clock=3000.0, hot=0.5, slowed=8.0, far=0.1, segments=Segments(10_000, 10), link=10_000)


@pytest.mark.parametrize(
    ("part", "own", "said"),
    [
        ("compute", USUAL, ""),
        ("compute", USUAL._replace(core=CoreTime(1, 0.1, 0.0)), "it may run on 1 core, others on 2"),
        ("compute", USUAL._replace(core=CoreTime(2, 5.0, 6.0)), "its CPU quota was used up for 6.0 s"),
        ("compute", USUAL._replace(core=CoreTime(2, 5.0, 0.0)), "it waited 5.0 s for a core that other processes used"),
        ("compute", USUAL._replace(hot=4.0), "heat lowered the clock of its cores for 4.0 s"),
        ("compute", USUAL._replace(hot=1.5), ""),
        (
            "compute",
            USUAL._replace(slowed=17.0),
            "heat or the power limit lowered the clock of its GPU for 17.0 s",
        ),
        ("compute", USUAL._replace(slowed=12.0), ""),  # all of them reach their power limits
        ("compute", USUAL._replace(clock=1200.0), "the clock of its core was 1.2 GHz, that of others 3.0 GHz"),
        ("compute", USUAL._replace(clock=2900.0), ""),
        ("compute", USUAL._replace(clock=0.0), ""),  # unknown
        ("compute", USUAL._replace(far=0.8), "80% of its memory is on another NUMA node than its cores"),
        ("compute", USUAL._replace(far=0.4), ""),
        ("compute", USUAL._replace(is_far=True), "its GPU is on another NUMA node than its cores"),
        ("data", USUAL, "its loader is slower"),
        ("data", USUAL._replace(disk=9.0), "its loader is slower, and processes on its machine waited 9.0 s for disks"),
        ("compute", USUAL._replace(disk=9.0), ""),
        (
            "data",
            USUAL._replace(segments=Segments(10_000, 300)),
            "its loader is slower, and its machine retransmitted 3% of its TCP segments",
        ),
        ("compute", USUAL._replace(segments=Segments(10_000, 15)), ""),
        ("logging", USUAL._replace(link=1000), "its network interface has 1,000 Mbit/s, that of others 10,000"),
        ("compute", USUAL._replace(link=0), ""),  # unknown
    ],
)
@pytest.mark.parametrize("others", [1, 2])
def test_the_cause_is_named_as_far_as_it_is_counted(part, own, said, others):
    assert cause(part, own, [*[USUAL] * others, own], seconds=20.0, longer=6.0) == said


def test_what_was_too_short_to_explain_the_delay_is_no_cause():
    waited = USUAL._replace(core=CoreTime(2, 5.0, 0.0), disk=16.0)
    found = [cause("data", waited, [USUAL, waited], seconds=20.0, longer=longer) for longer in (10.0, 18.0)]
    assert found == [
        "it waited 5.0 s for a core that other processes used",
        "its loader is slower, and processes on its machine waited 16.0 s for disks",
    ]


def test_what_all_ranks_have_is_no_cause():
    core = CoreTime(cores=1, ready=5.0, throttled=6.0)  # such as of a container that has all ranks
    far = USUAL._replace(core=core, is_far=True, far=0.9, clock=1000.0, link=100, segments=Segments(100, 50))
    assert cause("compute", far, [far] * 3, seconds=20.0, longer=6.0) == ""


def test_this_machine_counts_from_the_beginning_of_a_session():
    before = Hindrances.now(None)
    found = Hindrances.now(None).since(before)
    assert (found.core.cores, found.is_far, found.slowed) == (before.core.cores, False, 0.0)
    assert min(found.core.ready, found.hot, found.disk, found.far, *found.segments) >= 0
    assert before.since(before)._replace(core=CORES, far=0.0, link=0) == Hindrances(CORES)
