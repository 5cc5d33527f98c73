"""What ranks say to each other before there is a run; rank 0 and another one in this process."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from manyheads.launchers.foreign.meeting import Ask, Follower, Lead
from manyheads.launchers.foreign.stores import FolderStore
from manyheads.launchers.foreign.world import World
from manyheads.runner.errors import ConfigurationError, Interrupted

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
