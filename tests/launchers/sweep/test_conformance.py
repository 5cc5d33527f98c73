"""Hydra's own suites for launchers and sweepers."""

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite
from hydra.version import VersionBase
from packaging.version import Version

from hydra_plugins.manyheads.job_launcher import Manyheads
from manyheads.runner.config.hydra_version import VERSION_BASE

# The suites of Hydra 1.3 are written for the manners of 1.1, which it warns of.
pytestmark = [
    pytest.mark.ci,
    pytest.mark.filterwarnings("ignore:.*Future Hydra versions will no longer change working directory"),
]


@pytest.fixture(autouse=True)
def _manners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test before has asked of Hydra in this process."""
    base = Version("1.1") if VERSION_BASE else "1.4"
    monkeypatch.setattr(VersionBase.instance(), "version_base", base)


def test_hydra_finds_it():
    assert Manyheads.__name__ in [found.__name__ for found in Plugins.instance().discover(Launcher)]


@pytest.mark.parametrize(("launcher_name", "overrides"), [("manyheads", [])])
class TestLauncher(LauncherTestSuite):
    """Also with several jobs at once it stands for any other launcher."""


@pytest.mark.parametrize(("launcher_name", "overrides"), [("manyheads", ["hydra.launcher.jobs=2"])])
class TestSeveralAtOnce(LauncherTestSuite):
    """A process for each job changes nothing for Hydra."""


@pytest.mark.parametrize(("launcher_name", "overrides"), [("manyheads", ["hydra.sweeper.max_batch_size=2"])])
class TestSweeper(BatchedSweeperTestSuite):
    """Hydra's basic sweeper gives our launcher its jobs in batches."""


@pytest.mark.slow
@pytest.mark.tail
@pytest.mark.parametrize(("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=manyheads"])])
class TestIntegration(IntegrationTestSuite):
    """Whole applications, each in a process of its own."""
