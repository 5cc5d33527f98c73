"""Ranks join and leave their process group."""

import tempfile
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from manyheads.launchers.environment import file_rendezvous, variables_set
from manyheads.runner.parallel.rank.process_group import ProcessGroup


@pytest.mark.parametrize("letters", ["a b", "ünï", "+,[1]", "50%20", "pbs.12345[7].server", "a#b", "a?b;c", "'\\\n"])
def test_ranks_meet_in_a_temporary_folder_of_any_name(tmp_path, monkeypatch, letters):
    (tmp_path / letters).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / letters))
    parallel = ProcessGroup(timeout=60, rank=0, local_rank=0, world_size=1, device_type="cpu")
    with file_rendezvous() as variables, variables_set(variables):
        parallel.join()
        assert Path(variables["MANYHEADS_MEETING"]).exists()
        parallel.leave()


@pytest.mark.parametrize(("version", "are_kept"), [("2.7.1", True), ("2.8.0", False)])
def test_groups_are_kept_where_deallocating_them_can_hang(tmp_path, monkeypatch, version, are_kept):
    monkeypatch.setenv("MANYHEADS_MEETING", f"{tmp_path}/meeting")
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    parallel = ProcessGroup(timeout=60, rank=0, local_rank=0, world_size=1, device_type="cpu")
    parallel.join()
    group = weakref.ref(dist.group.WORLD)
    parallel.leave()
    assert not dist.is_initialized()
    assert (group() is not None) == are_kept
    parallel.leave()  # once more does no harm
