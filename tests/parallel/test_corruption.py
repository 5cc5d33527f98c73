"""Bits that are flipped in one of several ranks: that rank is named, and nothing of the update is stored."""

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.checkpoint.rank.load import complete
from manyheads.runner.errors import Kind, RunFailed
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small
from tests.tail import tail, tailed

pytestmark = pytest.mark.processes
COMMON = ("trainer.max_steps=12", "trainer.verify_every=1", "checkpoint.every=5", "logger=[]", "data.batch_size=12")
FIRST = r"features\.0\.weight"
OWN = rf"in update 7: on rank 1 \(cpu\) two computations of .*{FIRST}"
PART = rf"in update 7: on rank 1 \(cpu\) the exchanged gradients of {FIRST} differ"
SHARED = r"in update 7: on rank 1 \(cpu\) two computations of loss, "  # whose own gradients are parts of all
REST = rf"after update 7: on rank 1 \(cpu\) {FIRST} changed"
STATE = rf"after update 7: on rank 1 \(cpu\) momentum_buffer of {FIRST} changed"
OTHER = rf"in update 7: on rank 1 \(cpu\) the exchanged gradients of {FIRST} differ from those of other ranks"
BOTH = r"in update 7: on rank 0 \(cpu\) the exchanged .*; on rank 1 \(cpu\) the exchanged gradients of"
REST_OF_FSDP = ("fsdp", 2, "weight", REST)
CASES = [
    ("ddp", 2, "gradient", OWN),
    ("ddp", 2, "activation", OWN),
    ("ddp", 2, "batch", OWN),
    ("ddp", 2, "exchange", PART),
    ("ddp", 2, "exchanges", BOTH),  # of two replicas, none is the odd one
    ("ddp", 3, "exchanges", OTHER),
    ("ddp", 2, "weight", REST),
    ("ddp", 2, "optimizer", STATE),
    ("zero1", 2, "optimizer", r"after update 7: on rank 1 \(cpu\) momentum_buffer of .* changed"),
    ("fsdp", 2, "activation", SHARED),
    ("fsdp", 2, "exchange", PART),
    REST_OF_FSDP,
    ("fsdp", 3, "weight", REST),
    ("fsdp", 2, "optimizer", STATE),
    ("tensor", 2, "activation", SHARED),
    ("pipeline", 2, "weight", r"after update 7: on rank 1 \(cpu\) .* changed"),
]


def planted(what: str) -> tuple[str, ...]:
    options = {"_target_": "tests.planted.Flip", "what": what, "step": 7, "rank": 1}
    return tuple(f"+callbacks.flip.{key}={value}" for key, value in options.items())


@pytest.mark.parametrize(("strategy", "ranks", "what", "said"), tailed(CASES, always=[CASES[0], REST_OF_FSDP]))
def test_the_rank_is_named_and_the_last_checkpoint_is_sound(tmp_path, strategy, ranks, what, said):
    folder = RunFolder(tmp_path)
    folder.write_config(small(*COMMON, f"parallel={strategy}", f"launcher.nproc_per_node={ranks}", *planted(what)))
    with pytest.raises(RunFailed, match=said) as found:
        launch(prepare(folder))
    failure = found.value.failure
    assert failure.kind is Kind.CORRUPTED
    assert failure.rank == 1 or said == BOTH
    assert complete(folder.last_checkpoint)["progress"]["step"] == 5
    kept = sorted(path.name for path in folder.corruption.iterdir()) if folder.corruption.exists() else []
    assert ("update_7_rank_1.pt" in kept) == (what in ("gradient", "activation", "batch", "exchange"))


@pytest.mark.parametrize("strategy", ["ddp", tail("fsdp")])
def test_retried_it_ends_as_if_nothing_had_been(tmp_path, strategy):
    common = (*COMMON, f"parallel={strategy}", "launcher.nproc_per_node=2", "trainer.on_corruption=retry")
    ends = []
    for name, fault in (("plain", ()), ("flipped", planted("activation"))):
        folder = RunFolder(tmp_path / name)
        folder.write_config(small(*common, *fault))
        ends.append(launch(prepare(folder))["weights_sha256"])
    assert ends[0] == ends[1]
    assert "silent data corruption in update 7: on rank 1 (cpu) two computations" in folder.log.read_text()
