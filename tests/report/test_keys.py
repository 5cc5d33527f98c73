from pathlib import Path

import pytest

from manyheads.runner.records.keys import parsed, swept_keys
from manyheads.runner.records.run_set import gather
from manyheads.runner.run.run_folder import RunFolder
from tests.report.sweep import Sweep
from tests.sweeps import set_config


def test_swept_keys_are_those_whose_overrides_differ(sweep: Sweep):
    sweep.job("parallel=single", "data.batch_size=8", "+model.note=a")
    sweep.job("parallel=ddp", "data.batch_size=8", "+model.note=b")
    assert swept_keys(gather([str(sweep.folder)])) == ["parallel", "model.note"]


def test_a_job_without_an_override_has_the_configs_value(sweep: Sweep):
    sweep.job("parallel=ddp")
    sweep.job("data.batch_size=16")
    rows = sweep.rows()
    assert rows["0"].values == {"parallel": "ddp", "data.batch_size": "8"}
    assert rows["1"].values == {"parallel": "single", "data.batch_size": "16"}


def test_of_loose_runs_keys_that_follow_from_an_option_are_left_out(tmp_path: Path, real_run: RunFolder):
    sweep = Sweep(tmp_path / "sweep", real_run)
    first, second = sweep.job("parallel=single"), sweep.job("parallel=ddp", ranks=2)
    brought = {"parallel.bucket_cap_mb": 25, "launcher": "spawn", "launcher.threads_per_rank": 4}
    set_config(second, {**brought, "optimizer.lr": 0.1})
    assert swept_keys(gather([str(first), str(second)])) == ["parallel", "optimizer.lr"]


@pytest.mark.parametrize("typed", ["launcher=spawn", "launcher.threads_per_rank=4"])
def test_of_loose_runs_what_was_typed_stays(tmp_path: Path, real_run: RunFolder, typed: str):
    sweep = Sweep(tmp_path / "sweep", real_run)
    first, second = sweep.job("parallel=single"), sweep.job("parallel=ddp", typed)
    assert swept_keys(gather([str(first), str(second)])) == ["parallel", typed.partition("=")[0]]


def test_of_loose_runs_names_tags_and_notes_are_left_out_unless_typed(tmp_path: Path, real_run: RunFolder):
    sweep = Sweep(tmp_path / "sweep", real_run)
    first, second = sweep.job("seed=1"), sweep.job("seed=2", "name=b")
    set_config(second, {"seed": 2, "name": "b", "tags": ["x"], "notes": "y"})
    assert sorted(swept_keys(gather([str(first), str(second)]))) == ["name", "seed"]


def test_hydras_own_overrides_are_no_keys():
    assert parsed(["hydra.launcher.jobs=2", "++a.b='c d'", "~e"]) == {"a.b": "c d", "e": ""}
