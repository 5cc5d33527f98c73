"""Who is next: in the order of the claims, and none is overtaken by others that need fewer devices."""

from dataclasses import replace

import pytest

from manyheads.launchers.companions.room.claims import Claim, grant, holders, least_used

CORES = ("0", "1", "2", "3")


def claim(number: int, count: int, *devices: str, among: tuple[str, ...] = CORES) -> Claim:
    return Claim(f"/outputs/{number}", number, 0.0, "boot", "core", count, among, devices, number)


def test_the_first_free_devices():
    assert grant(claim(2, 2), [claim(1, 1, "1")]) == ("0", "2")


def test_a_claim_waits_for_devices_that_are_held():
    assert grant(claim(2, 2), [claim(1, 3, "0", "1", "2")]) is None


def test_a_claim_sets_aside_what_becomes_free_for_it():
    wide = claim(2, 4)
    claims = [claim(1, 2, "0", "1"), wide, claim(3, 1)]
    assert grant(claim(3, 1), claims) is None
    assert grant(claim(3, 1), [wide, claim(3, 1)]) is None
    assert grant(wide, [wide, claim(3, 1)]) == CORES


def test_what_earlier_claims_leave_is_free():
    assert grant(claim(2, 1), [claim(1, 2), claim(2, 1)]) == ("2",)


def test_claims_on_other_devices_are_not_waited_for():
    assert grant(claim(2, 1, among=("3",)), [claim(1, 3, among=("0", "1", "2"))]) == ("3",)


def test_cores_of_another_machine_are_other_cores():
    assert grant(claim(2, 4), [replace(claim(1, 4, *CORES), boot="another")]) == CORES


def test_gpus_are_the_same_from_every_container():
    held = replace(claim(1, 1, "GPU-1"), kind="gpu", boot="another")
    asks = replace(claim(2, 1, among=("GPU-1", "GPU-2")), kind="gpu")
    assert grant(asks, [held]) == ("GPU-2",)


def test_a_device_that_other_processes_use_is_not_free():
    assert grant(claim(1, 2), [], occupied=["0", "2"]) == ("1", "3")


@pytest.mark.parametrize(("occupied", "granted"), [([], None), (["0"], ("1",))], ids=["by runs", "by others"])
def test_only_devices_that_runs_will_free_are_waited_for(occupied, granted):
    """A run that needs all devices would otherwise keep all others from those beside one that another user occupies."""
    claims = [claim(1, 4), claim(2, 1)] if occupied else [claim(1, 4), claim(2, 1), claim(3, 1, "0")]
    assert grant(claims[1], claims, occupied) == granted


def test_processes_of_runs_do_not_count_as_others():
    """Of a run that holds a GPU, the driver reports processes too."""
    claims = [claim(1, 1, "0"), claim(2, 4), claim(3, 1)]
    assert grant(claims[2], claims, occupied=["0"]) is None


def test_a_run_that_does_not_wait_shares_the_least_used_cores():
    held = [claim(1, 3, "0", "1", "2"), claim(2, 1, "0")]
    assert least_used(claim(3, 2), held) == ("3", "1")


def test_a_run_that_does_not_wait_takes_the_first_gpus():
    asks = replace(claim(2, 1, among=("GPU-1", "GPU-2")), kind="gpu")
    held = replace(claim(1, 1, "GPU-1"), kind="gpu")
    assert least_used(asks, [held]) == ("GPU-1",)
    assert holders([held], asks) == {"GPU-1": [held], "GPU-2": []}
