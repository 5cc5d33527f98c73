"""What ends under Gloo, and would not under NCCL, is found and named; what keeps NCCL's rules is let through."""

import multiprocessing

import pytest

from tests.parallel.nccl_rules.calls import Call, Log
from tests.parallel.nccl_rules.programs import BREAKING, KEEPING, run_all
from tests.parallel.nccl_rules.replay import NCCLRuleBroken, Rule, check_calls, replay

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of two ranks that have run all programs over Gloo."""
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        context = multiprocessing.get_context("forkserver")
        ranks = [context.Process(target=run_all, args=(rank, folder)) for rank in (0, 1)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
    assert [each.exitcode for each in ranks] == [0, 0]
    return folder


@pytest.mark.parametrize("program", KEEPING, ids=lambda program: program.__name__)
def test_what_keeps_the_rules_is_let_through(recorded, program):
    assert check_calls(recorded / program.__name__, ranks=2) > 0


@pytest.mark.parametrize("program", BREAKING, ids=lambda program: program.__name__)
def test_what_breaks_a_rule_is_named(recorded, program):
    with pytest.raises(NCCLRuleBroken) as found:
        check_calls(recorded / program.__name__, ranks=2)
    assert found.value.rule is BREAKING[program]
    assert "programs.py:" in str(found.value)


def test_each_rule_is_broken_by_a_program():
    assert {*BREAKING.values()} == {*Rule}


def test_an_error_names_ranks_calls_and_rule(recorded):
    with pytest.raises(NCCLRuleBroken) as found:
        check_calls(recorded / "both_send_first", ranks=2)
    rule, *lines = str(found.value).splitlines()
    assert rule == f"NCCL's rule is that {Rule.RENDEZVOUS.value}. Here:"
    assert [line.partition(" (programs.py:")[0] for line in lines] == [
        f"  rank {rank}: send to rank {1 - rank} of (2, 3) float32 in the group of ranks [0, 1]" for rank in (0, 1)
    ]


def test_a_rank_that_has_failed_breaks_no_rule():
    """Others wait for it; its own error says why."""
    call = Call("allreduce", "all", (0, 1), None, "(2,) float32", True, "", "file.py:1")
    replay([Log([(call,)], has_ended=False), Log([], has_ended=False)])
    with pytest.raises(NCCLRuleBroken, match="rank 1: has made all of its calls"):
        replay([Log([(call,)], has_ended=False), Log([], has_ended=True)])
