"""Checkpoints in other formats: the same in everything, in little memory, and never over something."""

import os
import resource
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from manyheads.runner.app import main
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.convert_checkpoint import OneRank, convert, tensors
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.checkpoint.ranks import Rank, together
from tests.checkpoint.views import Given
from tests.in_process import small, train


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's last.pt."""
    return train(tmp_path_factory.mktemp("run"), small("optimizer=adamw")).folder.last_checkpoint


def assert_same(one, other) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert getattr(one, "_metadata", None) == getattr(other, "_metadata", None)
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == other


def test_there_and_back_it_is_the_same(single, tmp_path):
    folder = convert(single, "sharded", tmp_path / "parts")
    back = convert(folder, "single", tmp_path / "back.pt")
    assert_same(torch.load(back, weights_only=True), torch.load(single, weights_only=True))
    weights = torch.load(single, weights_only=True)["model"]
    for source in (single, folder):
        assert_same(torch.load(convert(source, "torch", tmp_path / f"{source.name}.w"), weights_only=True), weights)
        file = convert(source, "safetensors", tmp_path / f"{source.name}.s")
        assert_same(dict(sorted(safetensors.torch.load_file(file).items())), dict(sorted(weights.items())))


def test_by_the_commands(single, tmp_path, monkeypatch, capsys):
    def called(*words) -> int:
        monkeypatch.setattr("sys.argv", ["manyheads", *map(str, words)])
        return main()

    out = tmp_path / "parts"
    assert called("convert", single, "--to", "sharded", "--out", out) == 0
    assert f"{out}: " in capsys.readouterr().out
    assert called("show", out) == 0
    shown = capsys.readouterr().out
    assert "step 40, sharded, in 2 files" in shown
    assert "model/features.0.weight" in shown
    assert "(2, 3, 3, 3)" in shown
    assert called("show", single) == 0
    assert "step 40, a single file" in capsys.readouterr().out
    assert called("convert", single, "--to", "sharded", "--out", out) == 2
    assert "already exists" in capsys.readouterr().err
    assert called("convert", tmp_path / "none", "--to", "single") == 2
    assert called("convert", tmp_path, "--to", "single") == 2  # a folder of something else
    assert "index.json is missing" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # of earlier versions of torch
@pytest.mark.parametrize(
    ("weights", "what"),
    [
        (torch.eye(3).to_sparse(), "a tensor of layout torch.sparse_coo"),
        (torch.eye(3, device="meta"), "on the meta device, so it has no values"),
    ],
)
def test_tensors_without_a_value_at_each_place_are_refused(tmp_path, weights, what):
    torch.save({"model": {"w": weights}}, tmp_path / "x.pt")
    for to, name in (("safetensors", "w"), ("sharded", "model/w")):
        with pytest.raises(ConfigurationError, match=f"^{name} is {what}, which --to {to} does not support"):
            convert(tmp_path / "x.pt", to, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


def test_what_is_listed_is_not_loaded(single, monkeypatch, capsys):
    from manyheads.runner.checkpoint.sharded.rank import read_sharded

    monkeypatch.setattr(read_sharded.Stored, "read_into", None)
    assert dict(tensors(load(single, is_mapped=True)))


@pytest.mark.parametrize("to", ["single", "sharded", "safetensors", "torch"])
def test_it_takes_the_memory_of_a_tensor(tmp_path, to):
    """Sixteen of 4 MB, in a process that may have some 24 MB more than it has."""
    state = {"model": {f"w{number}": torch.full((1000, 1000), float(number)) for number in range(16)}, "progress": {}}
    checkpoints = CheckpointStore(RunFolder(tmp_path), every=1, keep=0, format="sharded")
    checkpoints.save(Given(state), OneRank(), step=1, best=False)
    source = RunFolder(tmp_path).last_checkpoint
    del state

    def work(_: Rank) -> None:
        with open("/proc/self/status") as file:
            used = next(int(line.split()[1]) for line in file if line.startswith("VmData")) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + 24_000_000,) * 2)
        convert(source, to, tmp_path / "out")

    assert together(1, work, tmp_path / "meeting") == [0], [
        path.read_text() for path in (tmp_path / "meeting").glob("error*")
    ]
    if to == "single":
        assert torch.equal(real(load(tmp_path / "out"))["model"]["w7"], torch.full((1000, 1000), 7.0))
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_in_somebodys_run_copies_nothing_of_the_users_own(single, tmp_path, kind):
    own = tmp_path / "own"
    own = Path(shutil.copy(single, own)) if kind == "file" else convert(single, "sharded", own)
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "last.pt").symlink_to(own)
    with pytest.raises(ConfigurationError, match="last.pt is a link"):
        convert(tmp_path / "sent" / "last.pt", "torch")
    assert os.listdir(tmp_path / "sent") == ["last.pt"]
