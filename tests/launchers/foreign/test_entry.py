"""What ranks say to each other before there is a run; rank 0 and another one in this process."""

import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads.launchers.foreign import check_devices, check_storage, entry
from manyheads.launchers.foreign.conventions import World
from manyheads.launchers.foreign.meeting import Ask, Follower, Lead
from manyheads.launchers.foreign.stores import FolderStore
from manyheads.runner.errors import ConfigurationError, Interrupted
from manyheads.runner.loop import build
from manyheads.runner.machine.hardware import elsewhere
from manyheads.runner.parallel.rank.ddp import DistributedDataParallel
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import typed

WORLD = World("torchrun", 0, 2, 0, 2)
OTHER = replace(WORLD, rank=1, local_rank=1)
WORDS = ("train", "model=mlp")
ORDER = {"folder": "/run", "config": "seed: 1\n"}


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    (tmp_path / "store").mkdir(mode=0o700)
    return FolderStore(tmp_path / "store")


def lead(store: FolderStore, world: World = WORLD, seconds: float = 20) -> Lead:
    return Lead(world, WORDS, store, seconds=seconds)


def beside(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ask(store: FolderStore, world: World = OTHER, words: Sequence[str] = WORDS, **said: Any) -> Ask:
    """Let a rank ask that says this of itself; it waits for no answer."""
    asked = replace(Ask.of(world, words), **said)
    store.set(f"ask-{asked.rank}", json.dumps(asdict(asked)))
    return asked


def test_a_rank_gets_the_run_and_begins_when_all_have_seen_it(store: FolderStore) -> None:
    words: list[Any] = []

    def follow() -> None:
        follower = Follower(OTHER, WORDS, store, seconds=20)
        order = follower.order()
        words.extend([order["config"], follower.confirm(order, shares=True)])

    ask(store)  # of an earlier attempt, whose process has ended
    other, leader = beside(follow), lead(store)
    asks, seen = leader.publish(ORDER, [])
    assert [each.rank for each in asks] == [1]
    assert seen[0]["shares"] is True
    assert not words
    leader.go()
    other.join(20)
    assert words == ["seed: 1\n", {"code": 0}]
    assert store.get("folder") == "/run"


def test_a_refusal_reaches_every_rank(store: FolderStore) -> None:
    codes: list[int] = []

    def follow() -> None:
        follower = Follower(OTHER, WORDS, store, seconds=20)
        order = follower.order()
        codes.append(follower.confirm(order)["code"])

    other = beside(follow)
    lead(store).dismiss(2)
    other.join(20)
    assert codes == [2]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"words": "others"}, "was started with another command line than rank 0"),
        ({"size": 3}, "says that there are 3 ranks, and rank 0 that there are 2"),
        ({"software": "manyheads 0, torch 1"}, "has manyheads 0, torch 1, and rank 0 manyheads"),
        ({"local_rank": 0}, "are both local rank 0 of their machine. Set LOCAL_RANK"),
    ],
)
def test_ranks_that_do_not_belong_together_are_refused(store: FolderStore, said: dict[str, Any], message: str) -> None:
    ask(store, **said)
    with pytest.raises(ConfigurationError, match="rank 1") as caught:
        lead(store, replace(WORLD, by="RANK and WORLD_SIZE")).publish(ORDER, [])
    assert message in str(caught.value)


def test_a_rank_that_is_there_twice_is_refused(store: FolderStore) -> None:
    world = replace(WORLD, size=3, local_size=3)
    first, leader = ask(store, replace(OTHER, size=3, local_size=3)), lead(store, world)
    store.set(f"seen-{leader.attempt}-1", json.dumps({"number": first.number}))

    def again() -> None:
        while store.get(f"answer-{first.number}") is None:
            pass
        ask(store, replace(OTHER, size=3, local_size=3), pid=7)

    other = beside(again)
    with pytest.raises(ConfigurationError, match="two processes say that they are rank 1"):
        leader.publish(ORDER, [])
    other.join(20)


def test_ranks_that_never_come_are_named(store: FolderStore) -> None:
    with pytest.raises(ConfigurationError, match=r"of the 2 ranks that torchrun has started, 1 did not ask"):
        lead(store, seconds=0.1).publish(ORDER, [])
    with pytest.raises(ConfigurationError, match="rank 1: rank 0 has not answered within"):
        Follower(OTHER, WORDS, store, seconds=0.1).order()
    with pytest.raises(Interrupted):
        lead(store).publish(ORDER, [15])


@pytest.mark.parametrize(
    "text", ["", "[", "[1]", '{"rank": 1}', json.dumps({**asdict(Ask.of(OTHER, WORDS)), "pid": "x"})]
)
def test_what_is_no_message_is_ignored(store: FolderStore, text: str) -> None:
    store.set("ask-1", text)
    with pytest.raises(ConfigurationError, match="1 did not ask"):
        lead(store, seconds=0.1).publish(ORDER, [])


def test_a_store_that_others_can_enter_is_refused(store: FolderStore, tmp_path: Path) -> None:
    (tmp_path / "store").chmod(0o755)
    with pytest.raises(ConfigurationError, match="is not a folder that only you can enter"):
        store.set("ask-1", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "-m", "seed=1,2"], "a sweep starts the ranks of its jobs itself, and torchrun has started 2"),
        (["train", "launcher=spawn"], "launcher=spawn starts its ranks itself"),
        (["train", "launcher.nproc_per_node=4"], "launcher.nproc_per_node=4: torchrun has started 2. Leave it out."),
        (["train", "parallel=dp"], "parallel=dp runs in one process"),
        *((([name, "outputs/run"]), f"{name} starts its processes itself") for name in ("judge", "tune", "scale")),
    ],
)
def test_what_starts_ranks_itself_is_refused(store: FolderStore, words: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        entry._completed(words, lead(store))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        (["train", "model=mlp"], ["parallel=ddp"]),
        (["train", "parallel=zero1", "launcher=foreign"], ["parallel=zero1"]),
        (["train", "--config-name", "mine"], []),
        (["train", "experiment=digits_quick"], ["parallel=ddp"]),
    ],
)
def test_the_ranks_that_there_are_are_set(store: FolderStore, words: list[str], strategy: list[str]) -> None:
    completed = entry._completed(words, lead(store))
    assert [word for word in completed if word.startswith("parallel=")] == strategy
    assert {"launcher=foreign", "launcher.nproc_per_node=2", "launcher.world_size=2"} <= {*completed}
    assert len(completed) == len(set(completed))


def test_a_machine_that_does_not_share_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path)
    check_storage(folder, None, [{"host": "a", "shares": True}])
    assert capsys.readouterr().err == ""
    check_storage(folder, None, [{"host": "a", "shares": True}, {"host": "b", "shares": False}])
    assert "b does not see" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="b: no room"):
        check_storage(folder, None, [{"host": "b", "shares": False, "why": "no room"}])
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/last.pt").touch()
    with pytest.raises(ConfigurationError, match="its last checkpoint, from which every rank resumes"):
        check_storage(folder, None, [{"host": "b", "shares": False}])


def test_each_rank_computes_on_the_only_gpu_that_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by srun --gpus-per-task=1, where every task sees one GPU, number 0."""
    ranks = ("parallel=ddp", "launcher.nproc_per_node=2", "trainer.device=cuda")
    with elsewhere(gpus=1, cores=4):
        foreign = typed(*ranks, "launcher=foreign", "launcher.world_size=2", "launcher.started_by=srun")
        with pytest.raises(ConfigurationError, match="there are more ranks than GPUs"):
            typed(*ranks, "launcher=spawn")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(DistributedDataParallel, "join", lambda self: None)
    assert build.join(foreign, rank=1, local_rank=1, world_size=2).device == torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert build.join(foreign, rank=1, local_rank=1, world_size=2).device == torch.device("cuda:1")


def test_ranks_that_see_the_same_gpu_alone_are_refused() -> None:
    first, second = (replace(Ask.of(world, WORDS), gpu="GPU-a") for world in (WORLD, OTHER))
    check_devices([first, replace(second, gpu="GPU-b")])
    check_devices([first, replace(second, machine="another")])
    check_devices([replace(first, gpu=""), replace(second, gpu="")])
    with pytest.raises(ConfigurationError, match="rank 0 .* and rank 1 .* see the same GPU, GPU-a"):
        check_devices([first, second])


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{name: spawn}", "launcher=spawn of this run starts"),
        ("{name: foreign, world_size: 3}", "launcher.world_size=3: torchrun has started 2. Start as many"),
        ("{name: foreign, world_size: 2}", None),
    ],
)
def test_a_run_is_resumed_by_its_own_ranks(store: FolderStore, tmp_path: Path, section: str, said: str | None) -> None:
    (tmp_path / "run.yaml").write_text(f"launcher: {section}\n")
    words = ["resume", str(tmp_path)]
    if said is None:
        assert entry._completed(words, lead(store)) == words
        return
    with pytest.raises(ConfigurationError) as caught:
        entry._completed(words, lead(store))
    assert said in str(caught.value)


ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1"}
TORCHRUN = {**ONE_RANK, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_MAX_RESTARTS": "3"}


@pytest.mark.parametrize(
    ("environment", "words", "expected"),
    [
        (ONE_RANK, ["train", "seed=1", "hydra.run.dir=run"], ["resume", "run"]),
        (ONE_RANK, ["train", "seed=1", "hydra.run.dir=run", "trust=[a]"], ["resume", "run", "trust=[a]"]),
        (ONE_RANK, ["train", "seed=1", "hydra.run.dir=new"], None),
        (ONE_RANK, ["train", "seed=1"], None),
        (ONE_RANK, ["train", "-m", "seed=1", "hydra.run.dir=run"], None),
        (ONE_RANK, ["train", "seed=1", "hydra.run.dir=run", "--cfg", "job"], None),
        (ONE_RANK, ["judge", "run"], None),
        ({}, ["train", "seed=1", "hydra.run.dir=run"], None),
        (TORCHRUN, ["train", "seed=1"], ["train", "seed=1", "hydra.run.dir=outputs/DAY/TIME-AGENT"]),
        (TORCHRUN, ["train", "seed=1", "hydra.run.dir=run"], ["resume", "run"]),
    ],
)
def test_the_only_rank_of_a_launcher_resumes_what_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: list[str], expected: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", environment)
    _write_run(Path("run"), ["seed=1"])
    entered = entry.enter(words, lambda given: given)
    assert [re.sub(r"[\d-]{10}/[\d-]{8}-\d+", "DAY/TIME-AGENT", word) for word in entered] == (expected or words)


def test_the_only_rank_of_a_launcher_resumes_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", ONE_RANK)
    _write_run(tmp_path, ["seed=1"])
    with pytest.raises(ConfigurationError, match="holds a run of another command line: seed=1 seed=2"):
        entry.enter(["train", "seed=2", f"hydra.run.dir={tmp_path}"], lambda given: given)


def test_a_job_of_the_same_name_resumes_its_run(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leader = lead(store, replace(WORLD, name="torchrun-mine"))
    completed = entry._completed(["train", "seed=1"], leader)
    assert completed[-1] == "hydra.run.dir=outputs/torchrun-mine"
    _write_run(Path("outputs/torchrun-mine"), [word for word in completed[1:] if not word.startswith("hydra.")])
    assert entry._completed(["train", "seed=1"], leader) == ["resume", "outputs/torchrun-mine"]
    with pytest.raises(ConfigurationError, match="holds a run of another command line: seed=1 seed=2"):
        entry._completed(["train", "seed=2"], leader)


def _write_run(folder: Path, overrides: list[str]) -> None:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra/overrides.yaml").write_text("".join(f"- {word}\n" for word in overrides))
    (folder / "run.yaml").touch()


def test_only_the_same_command_resumes_a_folder(store: FolderStore, tmp_path: Path) -> None:
    typed = ["train", "model=mlp", f"hydra.run.dir={tmp_path}"]
    completed = entry._completed(typed, lead(store))
    assert completed[0] == "train"
    _write_run(tmp_path, [word for word in completed[1:] if not word.startswith("hydra.")])
    assert entry._completed(typed, lead(store)) == ["resume", str(tmp_path)]
    with pytest.raises(ConfigurationError, match="holds a run of another command line: seed=2"):
        entry._completed([*typed, "seed=2"], lead(store))


@pytest.mark.parametrize(
    ("words", "world", "by_itself"),
    [
        (["train", "launcher=slurm"], replace(WORLD, by="srun"), True),
        (["train", "launcher=slurm"], WORLD, False),
        (["train", "launcher.rendezvous=a:1"], replace(WORLD, local_size=1), True),
        (["train", "launcher.rendezvous=a:1"], WORLD, False),
        (["train"], replace(WORLD, by="srun"), False),
    ],
)
def test_launchers_that_are_typed_on_every_machine(words: list[str], world: World, *, by_itself: bool) -> None:
    assert entry._is_met_by_itself(words, world) == by_itself
