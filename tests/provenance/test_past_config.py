"""A past run's config with changes, for its owner and for somebody else."""

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.provenance.past_config import PastConfig
from manyheads.runner.run.run_folder import RunFolder

CHANGES = ["data.batch_size=16", "hydra.run.dir=elsewhere"]


def test_what_is_typed_wins_over_what_the_command_sets_and_over_what_was_recorded(finished_run):
    past = PastConfig.admitted(finished_run, CHANGES)
    run = past.checked("data.batch_size=8", "trainer.epochs=3")
    assert (run.data.batch_size, run.trainer.epochs) == (16, 3)
    assert run.trainer.max_steps == past.config["trainer"]["max_steps"] == 2
    assert past.trust() is None
    assert past.line.overrides == ("data.batch_size=16",)


def test_of_somebody_elses_run_only_what_is_typed_is_ones_own(finished_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    past = PastConfig.admitted(finished_run, [*CHANGES, "trust=my_package"])
    trust = past.trust("trainer.epochs=3")
    assert trust is not None
    assert trust.covers("my_package.models")
    assert trust.is_own("data.batch_size", 16)
    assert trust.is_own("trainer.epochs", 3)
    assert not trust.is_own("seed", past.config["seed"])
    assert trust.folder == finished_run.path


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="holds no run"):
        PastConfig.admitted(RunFolder(tmp_path), [])
