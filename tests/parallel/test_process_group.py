"""Ranks leave their process group."""

import weakref

import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from manyheads.runner.parallel.rank.process_group import ProcessGroup


@pytest.mark.parametrize(("version", "are_kept"), [("2.7.1", True), ("2.8.0", False)])
def test_groups_are_kept_where_deallocating_them_can_hang(tmp_path, monkeypatch, version, are_kept):
    monkeypatch.setenv("MANYHEADS_INIT_METHOD", f"file://{tmp_path}/meeting")
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    parallel = ProcessGroup(timeout=60, rank=0, local_rank=0, world_size=1, device_type="cpu")
    parallel.join()
    group = weakref.ref(dist.group.WORLD)
    parallel.leave()
    assert not dist.is_initialized()
    assert (group() is not None) == are_kept
    parallel.leave()  # once more does no harm
