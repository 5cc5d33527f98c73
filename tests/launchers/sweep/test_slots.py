"""The processes of a parallel sweep, each of which runs one job after the other."""

import os
from collections.abc import Iterator

import pytest

from manyheads.launchers.sweep.slots import Slot
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.ledger import Entry

GPU = "CUDA_VISIBLE_DEVICES"


def see_gpus(entry: Entry) -> None:
    """A job that only says which GPUs it sees, the way that a job says anything: by how it ends."""
    raise ConfigurationError(os.environ.get(GPU, "whatever this machine has"))


@pytest.fixture
def slot() -> Iterator[Slot]:
    slot = Slot(0, [], see_gpus)
    yield slot
    slot.end()


def test_a_job_sees_nothing_of_the_environment_of_the_one_before(slot, tmp_path, monkeypatch):
    monkeypatch.delenv(GPU, raising=False)
    seen = []
    for gpus in ("1", None, "0", None):
        slot.give(Entry(0, "0", []), {} if gpus is None else {GPU: gpus}, str(tmp_path / "0" / "console.log"))
        seen.append(slot.take().reason)
    assert seen == ["1", "whatever this machine has", "0", "whatever this machine has"]
