"""Which processes run the command themselves, and what a launcher's only rank runs."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyheads.launchers.foreign import entry
from manyheads.launchers.foreign.world import World
from manyheads.runner.errors import ConfigurationError
from tests.launchers.foreign.test_command import write_run
from tests.launchers.foreign.test_meeting import WORLD

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
    write_run(Path("run"), ["seed=1"])
    entered = entry.enter(words, lambda given: given)
    assert [re.sub(r"[\d-]{10}/[\d-]{8}-\d+", "DAY/TIME-AGENT", word) for word in entered] == (expected or words)


def test_the_only_rank_of_a_launcher_resumes_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", ONE_RANK)
    write_run(tmp_path, ["seed=1"])
    with pytest.raises(ConfigurationError, match="holds a run of another command line: seed=1 seed=2"):
        entry.enter(["train", "seed=2", f"hydra.run.dir={tmp_path}"], lambda given: given)


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
