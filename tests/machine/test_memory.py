"""How much shared memory the doctor says there is."""

import shutil
from pathlib import Path

import pytest

from manyheads.runner.machine import memory


@pytest.mark.parametrize(
    ("total", "said"), [(512, "512 bytes"), (64 * 2**20, "67.1 MB"), (65536, "65.5 kB"), (15 * 10**8, "1.5 GB")]
)
def test_the_size_is_said(monkeypatch, total, said):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(total, total, 0))
    assert memory.size() == said


def test_where_it_is_no_folder(monkeypatch):
    monkeypatch.setattr(memory, "SHARED_MEMORY", Path("/nowhere"))
    assert memory.size() is None
