"""A run in which some rank does not come: the error names it, the operation at which the others wait, and its size."""

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import RunFailed
from manyheads.runner.machine.software import too_old
from manyheads.runner.parallel.rank.process_group import DUMPS, described
from manyheads.runner.run.heartbeat import Heartbeat, Pending
from tests.launchers.conftest import freeze, survivors
from tests.torch_versions import from_torch

FAULTY = ("model=custom", "model._target_=faulty.Faulty", "data.batch_size=48", "logger=[]")
OF = "(, an all_reduce of .*)" + "?" * bool(too_old("2.11"))  # Gloo kept no record in 2.6
CASES = [
    ("ddp", 3, rf"Rank 1 had not reached collective operation \d+{OF}, at which ranks 0 and 2 waited\.$"),
    pytest.param("fsdp", 2, rf"Rank 1 had not reached .*{OF}, at which rank 0 waited\.$", marks=from_torch("2.7")),
]
SLEEPS = ("+model.how=sleep", "+model.rank=1", "+model.step=5")


@pytest.mark.processes
@pytest.mark.tail  # of a stall says as much tests/launchers/test_failures.py
@pytest.mark.parametrize(("strategy", "ranks", "said"), CASES)
def test_a_timeout_names_the_operation_its_size_and_who_is_missing(tmp_path, strategy, ranks, said):
    timeout = ("parallel.timeout=4", f"launcher.nproc_per_node={ranks}")
    folder = freeze(tmp_path, *FAULTY, *SLEEPS, f"parallel={strategy}", *timeout)
    with pytest.raises(RunFailed, match=said):
        launch(prepare(folder))
    assert survivors(folder) == []


@pytest.mark.parametrize(
    ("name", "sizes", "dtypes", "said"),
    [
        ("gloo:all_reduce", [[1_000_000]], ["Float"], "an all_reduce of 4.0 MB"),
        ("nccl:_all_gather_base", [[10, 10], [3]], ["BFloat16", "Long"], "an all_gather of 224 bytes"),
        ("nccl:_reduce_scatter_base", [[2_000]], ["Half"], "a reduce_scatter of 4.0 kB"),
        ("nccl:all_to_allv", [[]], ["Double"], "an all_to_all of 8 bytes"),
        ("xccl:something", [], [], "an operation of 0 bytes"),
        ("gloo:broadcast", [[3]], ["Byte"], "a broadcast of 3 bytes"),
        ("nccl:recv 0<-1", [[3]], ["Float"], "a recv of 12 bytes"),
    ],
)
def test_an_entry_of_the_recorder_in_words(name, sizes, dtypes, said):
    entry = {"profiling_name": name, "input_sizes": sizes, "input_dtypes": dtypes}
    assert str(described(entry)) == said


def test_what_a_rank_waits_for_reaches_the_parent(tmp_path):
    path = tmp_path / "heartbeat"
    parent = Heartbeat.create(path, ranks=2)
    rank = Heartbeat(path, rank=1)
    assert parent.pending(1) is None
    rank.note_collective(7, Pending("all_gather", 5_000_000_000))
    assert (parent.collective(1), str(parent.pending(1))) == (7, "an all_gather of 5.0 GB")
    parent.write(0, rank.read(1))  # as another machine reports it
    assert parent.pending(0) == parent.pending(1)
    rank.note_collective(8)
    assert parent.pending(1) is None
    assert DUMPS.keys() == {"nccl", "gloo"}
