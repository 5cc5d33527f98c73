"""callbacks=profile, with torch's own profiler."""

import gzip
import json
import re

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import attempt, small, train
from tests.tail import tail

TRACED = ("callbacks=[profile]", "callbacks.profile.first_step=3", "callbacks.profile.steps=2", "trainer.max_steps=8")


def events(folder: RunFolder, rank: int = 0) -> list[str]:
    trace = json.loads(gzip.decompress((folder.path / "profile" / f"rank{rank}.pt.trace.json.gz").read_bytes()))
    return [event.get("name", "") for event in trace["traceEvents"]]


def updates(folder: RunFolder, rank: int = 0) -> int:
    """In the trace: the backward pass of the loss begins once in each."""
    return events(folder, rank).count("autograd::engine::evaluate_function: NllLossBackward0")


def test_it_traces_the_updates_that_were_asked_for(tmp_path, capsys):
    folder = train(tmp_path, small(*TRACED)).folder
    assert updates(folder) == 2
    assert "aten::convolution" in events(folder)
    assert "aten::" in (folder.path / "profile" / "rank0.txt").read_text()
    assert f"traces of 2 updates: {folder.path}" in capsys.readouterr().out.replace("\n", "")


def test_on_a_cpu_beside_gpus_the_table_is_sorted_by_cpu_time(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    folder = train(tmp_path, small(*TRACED)).folder
    rows = re.findall(r"^ +\S+ +([\d.]+)% ", (folder.path / "profile" / "rank0.txt").read_text(), re.MULTILINE)
    assert len(rows) > 10
    assert rows == sorted(rows, key=float, reverse=True)


def test_a_run_that_ends_meanwhile_leaves_what_there_is(tmp_path):
    assert updates(train(tmp_path, small(*TRACED, "callbacks.profile.first_step=8")).folder) == 1


def test_a_run_that_ends_before_is_told(tmp_path, capsys):
    folder = train(tmp_path, small(*TRACED, "callbacks.profile.first_step=20")).folder
    assert not (folder.path / "profile").exists()
    assert "callbacks.profile.first_step=20: the run ended before that step" in capsys.readouterr().out.replace(
        "\n", " "
    )


def test_a_run_that_fails_meanwhile_leaves_the_profiler_to_the_next(tmp_path):
    session = attempt(tmp_path / "fails", small(*TRACED, "optimizer.lr=1.0e+30", "callbacks.profile.steps=50"))
    with pytest.raises(FloatingPointError):
        session.train(seed=1, state=None)
    session.trainer.close()
    assert updates(train(tmp_path / "next", small(*TRACED)).folder) == 2


@pytest.mark.parametrize("key", ["first_step", "steps"])
def test_no_update_cannot_be_traced(tmp_path, key):
    with pytest.raises(ConfigurationError, match=rf"callbacks\.profile\.{key}=0: set a number of 1 or more\."):
        attempt(tmp_path, small(*TRACED, f"callbacks.profile.{key}=0"))


@pytest.mark.processes
@pytest.mark.parametrize("parallel", [tail("ddp"), tail("fsdp")])
def test_each_rank_has_a_trace(tmp_path, parallel):
    folder = RunFolder(tmp_path)
    folder.write_config(small(*TRACED, f"parallel={parallel}", "launcher.nproc_per_node=2"))
    launch(prepare(folder))
    assert [updates(folder, rank) for rank in (0, 1)] == [2, 2]
