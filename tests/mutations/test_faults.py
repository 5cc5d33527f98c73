"""Faults fit the code as it is now, and there is one for each promise."""

import re

import pytest

from tests.mutations.fault import ROOT, Fault
from tests.mutations.faults import FAULTS

ROWS = re.findall(r"^\| (.+?) \| (.+?) \|$", (ROOT / "docs" / "promises.md").read_text(), re.MULTILINE)[1:]
PROMISES = [promise for promise, rests_on in ROWS if "make bench" not in rests_on]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_it_can_be_planted(fault: Fault):
    assert fault.text() != (ROOT / fault.file).read_text()
    assert sum(fault.promise in promise for promise in PROMISES) == 1
    for test in fault.tests:
        file, _, names = test.partition("::")
        text = (ROOT / file).read_text()
        assert all(
            f"{name.partition('[')[0]}(" in text or f"class {name}:" in text for name in names.split("::") if name
        )


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_one(promise: str):
    assert any(fault.promise in promise for fault in FAULTS)


def test_a_fault_that_no_longer_fits_is_an_error():
    lost = Fault(name="lost", promise="", file="run.py", original="what nobody wrote", replacement="", tests=())
    with pytest.raises(ValueError, match=r"lost: run\.py contains 'what nobody wrote' 0 times instead of once"):
        lost.text()
