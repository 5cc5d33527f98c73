"""Saves of several ranks: what they write is whole or not there, wherever they are killed, and damage is told."""

import errno
import json
import os
import pickle
import random
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import complete, load
from manyheads.runner.checkpoint.sharded.rank import folders, shard_files, write_sharded
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.files import remove_leftovers
from manyheads.runner.run.run_folder import RunFolder
from tests.checkpoint.ranks import Rank, together
from tests.checkpoint.sharded.states import MOMENTS, state, whole
from tests.checkpoint.views import Given, OneRank, seen_on_gpu
from tests.tail import tail, tailed


def save(
    path: Path, count: int, *steps: int, keep: int = 0, asynchronous: bool = False, **moments: dict
) -> list[int | None]:
    """Let so many ranks save at these steps. ``moments``: by rank, as ``rank_0``, what replaces which function."""

    def work(rank: Rank) -> None:
        for name, replaced in moments.get(f"rank_{rank.rank}", {}).items():
            for module in (write_sharded, shard_files, write_sharded.Save, folders):
                if hasattr(module, name):
                    setattr(module, name, replaced)
        checkpoints = CheckpointStore(RunFolder(path), every=1, keep=keep, format="sharded", asynchronous=asynchronous)
        for step in steps:
            checkpoints.wait_for_save()
            made = state(rank.rank, count, step)
            checkpoints.save(Given(made), rank, step=step, best=True)
            for _, own in made["model"]["weight"].pieces if asynchronous else ():
                own.fill_(-1)  # training goes on
        checkpoints.wait_for_save()

    path.mkdir(exist_ok=True)
    return together(count, work, path / "meeting" / "-".join(map(str, steps)))


def names(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "checkpoints").iterdir())


def assert_is(path: Path, step: int) -> None:
    """Whole, and of this step in everything."""
    found = real(complete(path))
    assert torch.equal(found["model"]["weight"], whole(step))
    assert torch.equal(found["model"]["buffer"], torch.tensor(0.0 + step))  # the first rank's
    assert torch.equal(found["optimizer"]["state"][0]["momentum"], whole(step) * 2)
    assert found["optimizer"]["state"][0]["step"] == step
    (group,) = found["optimizer"]["param_groups"]
    assert group == {"lr": 0.1 + step, "betas": (0.9, 0.999), "clip": float("inf"), "params": [0]}
    assert found["progress"] == {"epoch": step}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks' checkpoints of steps 1 and 2."""
    path = tmp_path_factory.mktemp("saved")
    assert save(path, 3, 1, 2, keep=2) == [0, 0, 0]
    return path


def test_each_rank_writes_its_part_and_what_is_alike_is_written_once(saved):
    assert names(saved) == ["best_00000002", "step_00000001", "step_00000002"]
    assert_is(RunFolder(saved).last_checkpoint, 2)
    assert_is(saved / "checkpoints" / "step_00000001", 1)
    found = real(load(saved / "checkpoints" / "step_00000002"))
    assert [rng["torch"].tolist() for rng in found["rng"].values()] == [[rank] * 5 for rank in range(3)]
    shard_files = [
        safetensors.torch.load_file(saved / "checkpoints" / "step_00000002" / f"model-{rank:05}.safetensors")
        for rank in range(3)
    ]
    assert torch.equal(torch.cat([file[next(n for n in file if "weight" in n)] for file in shard_files]), whole(2))
    assert sum("buffer" in file for file in shard_files) == sum("tied" in file for file in shard_files) == 1


def test_best_has_the_weights_alone_and_takes_no_room(saved):
    best = RunFolder(saved).best_checkpoint
    found = real(load(best))
    assert set(found) == {"version", "model", "progress"}
    assert torch.equal(found["model"]["weight"], whole(2))
    for file in best.glob("*.safetensors"):
        assert file.samefile(saved / "checkpoints" / "step_00000002" / file.name)


def test_only_the_wanted_ones_stay(tmp_path):
    assert save(tmp_path, 1, 1, 2, 2, 3, keep=0) == [0]
    assert names(tmp_path) == ["best_00000003", "step_00000003"]


def test_one_step_is_saved_again_without_losing_the_first(tmp_path):
    assert save(tmp_path, 1, 2, 2, keep=0) == [0]
    assert names(tmp_path) == ["best_00000002.2", "step_00000002.2"]
    assert_is(RunFolder(tmp_path).last_checkpoint, 2)


def test_the_other_format_takes_over(tmp_path):
    single = CheckpointStore(RunFolder(tmp_path), every=1, keep=0)
    single.save(Given({"model": {"weight": whole(1)}, "progress": {}}), OneRank(), step=1, best=True)
    assert names(tmp_path) == ["best.pt", "last.pt"]
    assert save(tmp_path, 2, 2) == [0, 0]
    assert names(tmp_path) == ["best_00000002", "step_00000002"]
    single.save(Given({"model": {"weight": whole(3)}, "progress": {}}), OneRank(), step=3, best=True)
    assert names(tmp_path) == ["best.pt", "last.pt"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_gpu_s_parts_are_written(tmp_path, monkeypatch, asynchronous):
    seen_on_gpu(monkeypatch)
    assert save(tmp_path, 2, 1, 2, keep=2, asynchronous=asynchronous) == [0, 0]
    for step in (1, 2):
        assert_is(tmp_path / "checkpoints" / f"step_{step:08}", step)


# Rank 0 alone finishes a save; the others can be hit while they write.
HITS = [
    (count, victims, moment)
    for count in (2, 3, 4)
    for victims in ((0,), (count - 1,), tuple(range(count // 2)), tuple(range(count)))
    for moment in MOMENTS
    if victims == (0,) or moment in ("before writing", "in a file", "after writing")
]
ALWAYS = [
    *((2, (0,), moment) for moment in MOMENTS),
    (3, (2,), "in a file"),
    (4, (0, 1), "after writing"),
    (2, (0, 1), "in a file"),
]


@pytest.mark.parametrize(("count", "victims", "moment"), tailed(dict.fromkeys(HITS), always=ALWAYS))
def test_killed_at_any_moment_leaves_the_one_before_or_the_new_one(tmp_path, count, victims, moment):
    assert save(tmp_path, count, 1) == [0] * count
    codes = save(tmp_path, count, 2, **{f"rank_{rank}": MOMENTS[moment] for rank in victims})
    assert {codes[rank] for rank in victims} == {-9}
    left = RunFolder(tmp_path).last_checkpoint
    assert_is(left, 2 if moment == "after the name" else 1)
    is_best = moment in ("after best", "after the name")
    assert real(load(RunFolder(tmp_path).best_checkpoint))["progress"]["epoch"] == (2 if is_best else 1)
    assert save(tmp_path, count, 3) == [0] * count  # which clears away what was left
    assert names(tmp_path) == ["best_00000003", "step_00000003"]
    assert_is(RunFolder(tmp_path).last_checkpoint, 3)


@pytest.mark.parametrize("count", [3, *map(tail, (1, 2, 4))])
def test_beside_training_the_state_of_then_is_written(tmp_path, count):
    assert save(tmp_path, count, 1, 2, asynchronous=True) == [0] * count
    assert names(tmp_path) == ["best_00000002", "step_00000002"]
    assert_is(RunFolder(tmp_path).last_checkpoint, 2)
    assert not list(RunFolder(tmp_path).last_checkpoint.glob("0*.json"))


BESIDE = [hit for hit in dict.fromkeys(HITS) if hit[-1] != "after writing"]  # which is another function's


@pytest.mark.parametrize(("count", "victims", "moment"), tailed(BESIDE, always=[(2, (1,), "in a file")]))
def test_killed_while_it_is_written_beside_training(tmp_path, count, victims, moment):
    assert save(tmp_path, count, 1) == [0] * count
    codes = save(tmp_path, count, 2, asynchronous=True, **{f"rank_{rank}": MOMENTS[moment] for rank in victims})
    assert {codes[rank] for rank in victims} == {-9}
    assert_is(RunFolder(tmp_path).last_checkpoint, 2 if moment == "after the name" else 1)
    assert save(tmp_path, count, 3, asynchronous=True) == [0] * count
    assert names(tmp_path) == ["best_00000003", "step_00000003"]


def test_what_a_killed_save_leaves_is_cleared_by_the_next_attempt_too(tmp_path):
    assert save(tmp_path, 1, 1) == [0]
    assert save(tmp_path, 1, 2, rank_0=MOMENTS["before the index"]) == [-9]
    assert any(name.endswith(".aside") for name in names(tmp_path))
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["best_00000001", "step_00000001"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_disk_that_takes_no_more_on_one_rank_fails_them_all_and_leaves_the_one_before(tmp_path, asynchronous):
    assert save(tmp_path, 2, 1) == [0, 0]

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model-00001.safetensors")

    assert 1 in save(tmp_path, 2, 2, asynchronous=asynchronous, rank_1={"write_file": full})
    said = [path.read_text() for path in (tmp_path / "meeting" / "2").glob("error.*")]
    assert said
    assert all("No space left on device, so a checkpoint was not written; the previous one" in text for text in said)
    assert all("step_00000002" in text for text in said)
    assert RunFolder(tmp_path).last_checkpoint.name == "step_00000001"
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["best_00000001", "step_00000001"]


def test_a_limit_on_the_size_of_files_is_told(tmp_path):
    def work(rank: Rank) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        checkpoints = CheckpointStore(RunFolder(tmp_path), every=1, keep=0, format="sharded")
        checkpoints.save(Given({"model": {"large": torch.zeros(20_000)}}), rank, step=1, best=False)

    (code,) = together(1, work, tmp_path / "meeting")
    assert code == 1
    said = (tmp_path / "meeting" / "error.0").read_text()
    assert "File too large, so a checkpoint was not written; the previous one is intact" in said
    assert names(tmp_path) == []


# -- damage ------------------------------------------------------------------------------------------


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved / "checkpoints", tmp_path / "checkpoints")
    return tmp_path / "checkpoints" / "step_00000002"


OFFER = r"The previous one is intact: set checkpoint\.resume=.*step_00000001, or remove this one to resume\."


def test_a_missing_file_is_told_with_the_one_before(copied):
    (copied / "state-00001.safetensors").unlink()
    with pytest.raises(ConfigurationError, match=f"state-00001.safetensors is missing. {OFFER}"):
        load(copied)
    (copied / "index.json").unlink()
    with pytest.raises(ConfigurationError, match=f"index.json is missing. {OFFER}"):
        load(copied)
    shutil.rmtree(copied)
    assert_is(RunFolder(copied.parent.parent).last_checkpoint, 1)


def test_a_file_of_another_save_is_told(copied):
    shutil.copy(copied.parent / "step_00000001" / "model-00001.safetensors", copied)
    with pytest.raises(
        ConfigurationError, match="model-00001.safetensors belongs to another checkpoint, that of step 1"
    ):
        load(copied)


def test_where_none_is_whole_none_is_offered(copied):
    for folder in (copied, copied.parent / "step_00000001"):
        (folder / "model-00000.safetensors").unlink()
    with pytest.raises(ConfigurationError, match=r"model-00000.safetensors is missing\.$"):
        load(copied)


@pytest.mark.parametrize("name", ["index.json", "model-00001.safetensors", "state-00000.safetensors"])
def test_any_flipped_byte_and_any_cut_is_noticed(copied, name):
    path, draws = copied / name, random.Random(0)
    content = path.read_bytes()
    for at in (0, 1, len(content) - 1, *(draws.randrange(len(content)) for _ in range(60))):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << draws.randrange(8)]) + content[at + 1 :])
        with pytest.raises(ConfigurationError, match="is damaged or not a checkpoint"):
            load(copied)
    for size in (0, 1, 8, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ConfigurationError, match="is damaged or not a checkpoint"):
            load(copied)


def test_ranks_share_the_look_at_the_files_and_all_hear_of_damage(copied, monkeypatch):
    looked = []

    def digest(file, kind):
        looked.append(Path(file.name).name)
        return SimpleNamespace(hexdigest=lambda: "wrong")

    monkeypatch.setattr("hashlib.file_digest", digest)
    with pytest.raises(ConfigurationError):
        load(copied)
    assert len(looked) == 2  # of this one and the one before
    monkeypatch.undo()
    (copied / "model-00002.safetensors").unlink()

    def work(rank: Rank) -> None:
        with pytest.raises(ConfigurationError, match=r"model-00002\.safetensors is missing"):
            load(copied, rank)

    assert together(2, work, copied.parent / "meeting") == [0, 0]


def test_what_an_index_of_somebody_else_says_is_checked(copied):
    """With a right digest, since whoever writes one can have that too."""
    good = json.loads((copied / "index.json").read_text())

    def refused(change, match):
        content = json.loads(json.dumps(good))
        content.pop("sha256")
        change(content)
        from manyheads.runner.checkpoint.sharded.index import _text, hashlib

        (copied / "index.json").write_bytes(_text({**content, "sha256": hashlib.sha256(_text(content)).hexdigest()}))
        with pytest.raises(ConfigurationError, match=match):
            load(copied)

    def piece(content):
        return content["tensors"]["model/weight"]["pieces"][0]

    def more(content, where):
        """The same bytes by many names."""
        entry = where["model/weight" if where is content["tensors"] else "weight"]
        where.update({str(number): entry for number in range(10_000)})

    refused(lambda c: c["files"].update({"../x.safetensors": {"bytes": 1, "sha256": ""}}), "names a file")
    refused(lambda c: c["files"].update({"run.yaml": {"bytes": 1, "sha256": ""}}), "names a file")
    refused(lambda c: piece(c).__setitem__(1, 10**12), "lies outside its file")
    refused(lambda c: piece(c).__setitem__(1, -8), "not the index|lies outside its file")
    refused(lambda c: piece(c).__setitem__(2, [7, 0]), "lies outside its tensor|is not complete")
    refused(lambda c: piece(c).__setitem__(3, [1, 3]), "is not complete")
    refused(lambda c: c["tensors"]["model/weight"].update(shape=[10**9, 3]), "is not complete")
    refused(lambda c: c["tensors"]["model/weight"].update(dtype="OBJ"), "unknown|not the index")
    refused(lambda c: more(c, c["tensors"]), "its tensors would take")
    refused(lambda c: more(c, c["state"]["model"]), "its tensors would take")
    refused(lambda c: c.update(version=99), "newer version of manyheads")
    refused(lambda c: c.update(state=[]), "not the index")
    refused(lambda c: c["state"].update(model={"weight": {"tensor": "none"}}), "not the index")
    refused(lambda c: c["state"].update(model=1), "holds no named weights")
    refused(lambda c: c["state"].update(version="x"), "damaged or not a checkpoint: its version is 'x'")


def test_nothing_in_it_is_pickled_and_no_link_is_followed(copied, tmp_path):
    witness = tmp_path / "witness"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(witness),)

    for name in ("index.json", "model-00000.safetensors"):
        content = (copied / name).read_bytes()
        (copied / name).write_bytes(pickle.dumps(Evil()))
        with pytest.raises(ConfigurationError):
            load(copied)
        (copied / name).write_bytes(content)
    assert not witness.exists()
    real_file = (copied / "model-00000.safetensors").rename(tmp_path / "elsewhere")
    (copied / "model-00000.safetensors").symlink_to(real_file)
    with pytest.raises(ConfigurationError, match="is a link"):
        load(copied)
