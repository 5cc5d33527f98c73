"""Checkpoints: what they hold, when they are written, how damage is noticed."""

import errno
import io
import os
import random
import threading
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from manyheads.runner.checkpoint.rank import checkpoints as checkpoint
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.fit import load_model, load_optimizer
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import PARTS, load, weights_sha256
from manyheads.runner.checkpoint.retention import Retention
from manyheads.runner.commands.reproduce.rank import farthest_weight
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.small_cnn import SmallCNN
from manyheads.runner.parallel.rank.zero1 import ShardedOptimizer
from manyheads.runner.run.checkpoint_places import by_step
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.weights import chosen
from tests.checkpoint.views import Given, OneRank
from tests.in_process import attempt, rows, small, train

WHOLE = {**dict.fromkeys(PARTS), "model": {}}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.mark.parametrize(
    ("every", "steps", "epochs"),
    [
        ("1epoch", [], [1, 2, 3, 4, 5, 6]),
        ("2epochs", [], [2, 4, 6]),
        (2, [2, 4, 6], []),
        (0, [], []),
    ],
)
def test_when_a_checkpoint_is_due(folder, every, steps, epochs):
    checkpoints = CheckpointStore(folder, every=every, keep=0)
    assert [n for n in range(1, 7) if checkpoints.due_after_step(n)] == steps
    assert [n for n in range(1, 7) if checkpoints.due_after_epoch(n)] == epochs
    assert checkpoints.enabled == (every != 0)


def test_last_best_and_keep(folder):
    checkpoints = CheckpointStore(folder, every=1, keep=2)
    assert checkpoints.last() is None
    for step in range(1, 6):
        checkpoints.save(Given({**WHOLE, "model": {"step": step}}), OneRank(), step=step, best=step == 3)
    assert checkpoints.last()["model"] == {"step": 5}
    assert load(folder.best_checkpoint) == {"version": 1, "model": {"step": 3}, "progress": WHOLE["progress"]}
    names = sorted(path.name for path in folder.checkpoints.iterdir())
    assert names == ["best.pt", "last.pt", "step_00000004.pt", "step_00000005.pt"]


def test_ranks_that_see_different_checkpoints_do_not_train_together(folder):
    """A network's file system may show a new file later on some machines: their ranks would start from scratch."""
    checkpoints = CheckpointStore(folder, every=1, keep=0)
    checkpoints.save(Given(WHOLE), OneRank(), step=1, best=False)
    late = OneRank()
    late.gather = lambda name: [name, name, None]
    with pytest.raises(RuntimeError, match=r"last\.pt on rank 1, none on rank 2\. Resume again\."):
        checkpoints.last(ranks=late)
    late.gather = lambda name: [name, name, name]
    assert checkpoints.last(ranks=late)["is_elsewhere"] is False


def test_what_is_to_be_kept_is_written(tmp_path):
    """A number of updates after which to keep a checkpoint is not cut by the default, one for each epoch."""
    due = CheckpointStore(RunFolder(tmp_path), every="1epoch", keep=Retention(every=15)).due_after_step
    assert [step for step in range(1, 40) if due(step)] == [15, 30]
    assert not CheckpointStore(RunFolder(tmp_path), every=0, keep=Retention(every=15)).due_after_step(15)


@pytest.mark.parametrize(
    ("keep", "stay"),
    [
        (Retention(last=2), [80, 90]),
        (Retention(every=40), [40, 80]),
        (Retention(last=1, every=30), [30, 60, 90]),
        (Retention(hours=2), [10, 30, 50, 70, 90]),
        (Retention(last=2, hours=3.5), [10, 50, 80, 90]),
        (Retention(), []),
    ],
    ids=str,
)
def test_which_ones_stay(folder, monkeypatch, keep, stay):
    """Nine checkpoints, one an hour; decided anew after each."""
    checkpoints, hour = CheckpointStore(folder, every=10, keep=keep), 3600
    named = checkpoint.also_named

    def an_hour_later(path, name):
        os.utime(path, (0, int(name.stem[5:]) // 10 * hour))
        named(path, name)

    monkeypatch.setattr(checkpoint, "also_named", an_hour_later)
    for step in range(10, 100, 10):
        checkpoints.save(Given({**WHOLE, "model": {"step": step}}), OneRank(), step=step, best=False)
    assert [*by_step(folder.checkpoints)] == stay
    assert checkpoints.last()["model"] == {"step": 90}


def test_own_checkpoint_comes_before_another_run_s(folder, tmp_path):
    other = CheckpointStore(RunFolder(tmp_path / "other"), every=1, keep=0)
    (tmp_path / "other").mkdir()
    other.save(Given({**WHOLE, "mark": "other", "tables": {"steps": 100}}), OneRank(), step=1, best=False)
    path = str(tmp_path / "other" / "checkpoints" / "last.pt")
    checkpoints = CheckpointStore(folder, every=1, keep=0)
    state = checkpoints.last(otherwise=path)
    assert (state["mark"], state["source"], state["tables"]) == ("other", path, {})
    checkpoints.save(Given({**WHOLE, "mark": "own"}), OneRank(), step=2, best=False)
    assert checkpoints.last(otherwise=path)["mark"] == "own"


def test_another_optimizer_s_state_is_refused():
    model = nn.Linear(2, 2)
    state = torch.optim.AdamW(model.parameters()).state_dict()
    sgd = torch.optim.SGD(model.parameters())
    wanted = "a.pt belongs to .* one with betas where this one has momentum. Set optimizer="
    with pytest.raises(ConfigurationError, match=wanted):
        load_optimizer(sgd, state, "a.pt")
    load_optimizer(sgd, torch.optim.SGD(model.parameters(), lr=0.5).state_dict(), "a.pt")
    assert sgd.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("precision", [["precision=amp", "precision.dtype=float16"], ["precision=fp64"], []])
def test_goes_on_in_another_precision(tmp_path, precision):
    first = train(tmp_path / "first", small("trainer.epochs=1"))
    second = small(f"checkpoint.resume={first.folder.last_checkpoint}", *precision)
    folder = RunFolder(tmp_path / "second")
    state = CheckpointStore(folder, every=0, keep=0).last(otherwise=second["checkpoint"]["resume"])
    run = attempt(folder.path, second, state=state)
    run.train(seed=second["seed"], state=state)
    assert run.trainer.progress.step == 40
    assert [row["epoch"] for row in rows(folder.epochs)] == ["2"]


def test_what_lacks_a_part_is_not_gone_on_from(folder):
    checkpoints = CheckpointStore(folder, every=1, keep=0)
    checkpoints.save(Given({"model": {}}), OneRank(), step=1, best=False)
    with pytest.raises(ConfigurationError, match="lacks optimizer"):
        checkpoints.last()


def test_a_checkpoint_that_fails_half_way_leaves_the_one_before(folder):
    checkpoints = CheckpointStore(folder, every=1, keep=0)
    checkpoints.save(Given({**WHOLE, "mark": 1}), OneRank(), step=1, best=False)
    with pytest.raises(Exception, match="pickle|local object"):
        checkpoints.save(Given({"big": torch.zeros(1000), "mark": lambda: None}), OneRank(), step=2, best=True)
    assert checkpoints.last()["mark"] == 1
    assert [path.name for path in folder.checkpoints.iterdir()] == ["last.pt"]


def test_a_run_s_checkpoint_holds_everything_and_is_plain_data(tmp_path):
    run = train(tmp_path, small("checkpoint.keep=3", "precision=amp", "precision.dtype=float16"))
    state = torch.load(run.folder.last_checkpoint, weights_only=True)
    parts = {"model", "optimizer", "scheduler", "precision", "progress", "rng", "tables"}
    assert set(state) == {"version", "epoch_updates", *parts}
    assert weights_sha256(state["model"]) == run.folder.read_result()["weights_sha256"]
    assert state["optimizer"]["state"][0]["momentum_buffer"].shape == (2, 3, 3, 3)
    assert state["precision"]["scale"] == 65536.0
    assert state["scheduler"] == {"step": 40}
    assert (state["progress"]["epoch"], state["progress"]["step"], state["progress"]["epoch_step"]) == (2, 40, 0)
    assert [set(rng) for rng in state["rng"]] == [{"torch", "random", "numpy"}]
    assert state["tables"]["steps"] == run.folder.steps.stat().st_size
    assert sorted(path.name for path in run.folder.checkpoints.glob("step_*")) == [
        "step_00000020.pt",
        "step_00000040.pt",
    ]


def test_a_sharded_run_is_used_like_any_other(tmp_path):
    """Resumed, tested, evaluated, compared, listed: by the same bits as one with single files."""
    from manyheads.launchers.companions.publishing.tracked_run import files

    common = ("trainer.epochs=2", "checkpoint.keep=2", "optimizer=adamw")
    one = train(tmp_path / "one", small(*common))
    other = train(tmp_path / "other", small(*common, "checkpoint.format=sharded"))
    single, sharded = (run.folder for run in (one, other))
    names = sorted(path.name for path in sharded.checkpoints.iterdir())
    assert names[1:] == ["step_00000020", "step_00000040"]
    assert names[0].startswith("best_")
    for name in ("last_checkpoint", "best_checkpoint"):
        before, after = (real(load(getattr(folder, name))) for folder in (single, sharded))
        assert weights_sha256(after["model"]) == weights_sha256(before["model"])
        assert list(after["model"]) == list(before["model"])
    for source in (single, sharded):
        path = [*by_step(source.checkpoints).values()][0]
        for form in ("single", "sharded"):
            resumed = train(
                tmp_path / f"{source.path.name}_{form}",
                small(*common, f"checkpoint.format={form}", f"checkpoint.resume={path}"),
            )
            assert resumed.folder.read_result()["weights_sha256"] == single.read_result()["weights_sha256"]
    assert farthest_weight(single, sharded)[-1] == 0
    assert chosen(sharded) == ("best", sharded.best_checkpoint)
    assert [path.name for path in files(sharded, checkpoint="last")][-3:] == [
        "index.json",
        "model-00000.safetensors",
        "state-00000.safetensors",
    ]


@pytest.mark.parametrize("form", ["single", "sharded"])
def test_written_beside_training_it_is_the_same(tmp_path, form, monkeypatch, capsys):
    """And whoever comes too early waits, and says so."""
    monkeypatch.setattr("manyheads.runner.loop.session.NOTABLE", -1.0)
    common = ("checkpoint.every=8", "checkpoint.keep=9", "optimizer=adamw")
    one = train(tmp_path / "one", small(*common)).folder
    other = train(
        tmp_path / "other", small(*common, f"checkpoint.format={form}", "checkpoint.asynchronous=true")
    ).folder
    assert capsys.readouterr().out.count("which was still being written") >= 5
    pairs = zip(by_step(one.checkpoints).items(), by_step(other.checkpoints).items(), strict=True)
    for (step, before), (found, after) in pairs:
        assert step == found
        expected, state = (real(load(path)) for path in (before, after))
        assert weights_sha256(expected["model"]) == weights_sha256(state["model"])
        torch.testing.assert_close(state["optimizer"]["state"], expected["optimizer"]["state"], rtol=0, atol=0)


@pytest.mark.parametrize("form", ["single", "sharded"])
def test_rows_are_on_the_disk_before_the_checkpoint_that_counts_them(tmp_path, monkeypatch, form):
    """Else a power cut between the two leaves a table with a hole."""
    synced, sync = [], os.fsync

    def watched(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    folder = train(tmp_path, small("checkpoint.every=1epoch", f"checkpoint.format={form}")).folder
    named = [number for number, path in enumerate(synced) if path == str(folder.checkpoints)]  # a name is given
    assert named
    for table in (folder.steps, folder.epochs):
        assert synced.index(str(table)) < named[0]


def test_a_failure_beside_training_fails_the_run(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left on device.*last.pt"):
        train(tmp_path, small("checkpoint.asynchronous=true"))
    assert not any(thread.name.startswith("checkpoint") for thread in threading.enumerate())


def test_auto_is_a_single_file_up_to_half_of_the_memory(tmp_path, monkeypatch):
    assert train(tmp_path / "one", small()).folder.last_checkpoint.name == "last.pt"
    monkeypatch.setattr("manyheads.runner.checkpoint.rank.checkpoints.memory_bytes", lambda: 10_000)
    folder = train(tmp_path / "other", small()).folder
    assert folder.last_checkpoint.name == "step_00000040"
    assert not (folder.checkpoints / "last.pt").exists()


def test_best_is_the_epoch_that_the_monitor_says(tmp_path):
    config = small("checkpoint.monitor=val_loss", "trainer.epochs=4", "optimizer.lr=0.5", "data.train_samples=48")
    run = train(tmp_path, config)
    losses = {int(row["epoch"]): float(row["val_loss"]) for row in rows(run.folder.epochs)}
    best = min(losses, key=losses.__getitem__)
    assert torch.load(run.folder.best_checkpoint, weights_only=True)["progress"]["epoch"] == best
    result = run.folder.read_result()
    assert result["best"]["epoch"] == best
    assert result["best"]["val_loss"] == result["objective"] == losses[best]


def test_checkpoint_every_0_writes_none(tmp_path):
    run = train(tmp_path, small("checkpoint.every=0"))
    assert not run.folder.checkpoints.exists()


@pytest.fixture
def saved(folder) -> RunFolder:
    torch.manual_seed(3)
    state = {"model": SmallCNN(num_classes=3, width=2).state_dict(), "progress": {"step": 3}}
    CheckpointStore(folder, every=1, keep=0).save(Given(state), OneRank(), step=3, best=False)
    return folder


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_checkpoint_is_refused(saved, share):
    path = saved.last_checkpoint
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(ConfigurationError, match=rf"{path} is damaged"):
        load(path)


@pytest.mark.parametrize("content", [b"not a checkpoint", b"\x80\x02.", b"PK\x03\x04", bytes(4096), b"\x89PNG\r\n"])
def test_another_kind_of_file_is_refused(tmp_path, content):
    path = tmp_path / "last.pt"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"{path} is damaged or not a checkpoint"):
        load(path)


def test_an_error_says_what_is_wrong_in_words_and_nothing_of_libraries(tmp_path):
    claims = b'{"w":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}}'
    archive = io.BytesIO()
    torch.save({"model": {"w": torch.zeros(2)}}, archive)
    for content in (
        len(claims).to_bytes(8, "little") + claims,
        (2**40).to_bytes(8, "little") + claims,
        b"X\xff\xff\xff\x7f",
        b"\x8d" + (2**40).to_bytes(8, "little"),
        b"(S'\xe9'\n.",
        b"I\xe9\n.",
        b"not a checkpoint",
        archive.getvalue()[:-40],
    ):
        (tmp_path / "last.pt").write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"is damaged or not a checkpoint: torch cannot read it\.$"):
            load(tmp_path / "last.pt")


def test_a_damaged_checkpoint_is_noticed_or_changes_nothing(saved):
    """Bytes overwritten anywhere: an error of ours, or (in padding and names) no change of the weights."""
    path = saved.last_checkpoint
    whole = path.read_bytes()
    before = weights_sha256(load(path)["model"])
    draws, refused = random.Random(0), 0
    for _ in range(300):
        at = draws.randrange(len(whole) - 8)
        path.write_bytes(whole[:at] + bytes(b ^ 0xFF for b in whole[at : at + 8]) + whole[at + 8 :])
        try:
            content = load(path)
            model = SmallCNN(num_classes=3, width=2)
            load_model(model, content.get("model", content), path)
        except ConfigurationError:
            refused += 1
        else:
            assert weights_sha256(model.state_dict()) == before, at
    assert refused > 100


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    path, witness = tmp_path / "evil.pt", tmp_path / "witness"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(witness),)

    torch.save({"model": Evil()}, path)
    with pytest.raises(ConfigurationError, match=r"damaged or not a checkpoint: it names posix.mkdir, and only"):
        load(path)
    assert not witness.exists()


def test_absent_newer_and_nameless_checkpoints_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.pt does not exist"):
        load(tmp_path / "none.pt")
    torch.save({"version": 99}, tmp_path / "newer.pt")
    with pytest.raises(ConfigurationError, match="newer version"):
        load(tmp_path / "newer.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    with pytest.raises(ConfigurationError, match="no named weights"):
        load(tmp_path / "list.pt")


@pytest.mark.parametrize("other", [SmallCNN(num_classes=3, width=4), SmallCNN(num_classes=4, width=2), nn.Linear(2, 2)])
def test_another_model_s_weights_are_refused_and_leave_the_model_alone(saved, other):
    before = weights_sha256(other.state_dict())
    with pytest.raises(ConfigurationError, match=r"last\.pt belongs to another model: \d+ of its names .* Set model="):
        load_model(other, load(saved.last_checkpoint)["model"], saved.last_checkpoint)
    assert weights_sha256(other.state_dict()) == before


def test_the_digest_is_that_of_names_dtypes_shapes_and_bytes():
    weights = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor(3)}
    digest = weights_sha256(weights)
    assert digest == "6aa3f4970321fd569409afa9f67d9fa959eacf7be1583c64d40e9dac788c3617"
    assert weights_sha256(dict(reversed(weights.items()))) == digest
    assert weights_sha256({**weights, "b": weights["b"].t().contiguous().t()}) == digest
    for other in (
        {**weights, "b": weights["b"].double()},
        {**weights, "b": weights["b"].reshape(3, 2)},
        {**weights, "b": weights["b"].nextafter(torch.tensor(9.0))},
        {"c": weights["b"], "a": weights["a"]},
    ):
        assert weights_sha256(other) != digest


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int64, torch.uint8])
def test_the_digest_takes_every_dtype(dtype):
    assert len(weights_sha256({"a": torch.ones(3).to(dtype), "empty": torch.empty(0, 2).to(dtype)})) == 64


@pytest.fixture
def group_of_one():
    """A process group without threads, which ZeRO-1 asks for its rank."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("wrapped", [lambda sgd: sgd, partial(ShardedOptimizer, rank=0)], ids=["plain", "zero1"])
@pytest.mark.parametrize("saved", [torch.contiguous_format, torch.channels_last])
def test_momentum_of_another_memory_format_belongs_to_the_same_weights(saved, wrapped):
    """A fused step reads weights and momentum in the order of their memory."""

    def trained(memory_format, state=None):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3).to(memory_format=memory_format))
        sgd = wrapped(torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=True))
        if state is not None:
            load_optimizer(sgd, state, "a.pt")
        weight.grad = torch.randn(4, 3, 3, 3).to(memory_format=memory_format)
        sgd.step()
        return weight, sgd.state_dict()

    other = torch.channels_last if saved == torch.contiguous_format else torch.contiguous_format
    _, state = trained(saved)
    assert torch.allclose(trained(other, state)[0], trained(saved, state)[0], atol=1e-6)
