"""A short run that was recorded, and copies of it to publish."""

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.launchers.result import finish
from manyheads.runner.loop import log_windows
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.provenance import record
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder
from tests.callbacks.tracking import TRACKED
from tests.in_process import attempt, small


def planned(path: Path, place: Path, *overrides: str) -> RunFolder:
    """A run that was frozen and recorded, with a tracker, and has not begun."""
    place.mkdir(exist_ok=True)
    folder = RunFolder(path)
    config = small(*TRACKED, f"+logger.kept.place={place}", "logger=csv", *overrides)
    folder.write_config(config)
    record(folder, RunConfig.of(config))
    return folder


def change(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Freeze another config in a run that stays the same at trackers."""
    folder.write_config(config, sealed={"id": str(read_json(folder.provenance)["id"])})


def resume_to_the_end(folder: RunFolder) -> None:
    """Go on with a run that trainer.stop_after has ended."""
    config = folder.read_config()
    config["trainer"]["stop_after"] = None
    change(folder, config)
    folder._checked = None
    launch(prepare(folder))


@pytest.fixture(scope="module")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    place = tmp_path_factory.mktemp("finished")
    folder = planned(place / "run", place / "tracker", "name=first", "tags=[a,b]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_windows, "COLLECT_SECONDS", 0.0)
        run = attempt(folder.path, folder.read_config())
        with closing(run.trainer):
            run.train(seed=1, state=None)
    change(folder, folder.read_config())
    finish(folder, RunConfig.read(folder).as_planned, 1.0)
    return folder


@pytest.fixture
def finished(_finished: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of a run of 40 updates in two epochs, with a row of steps.csv for 8, 16, 20, 24, 32, 40."""
    shutil.copytree(_finished.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the tracker of these tests keeps its runs."""
    (tmp_path / "tracker").mkdir()
    return tmp_path / "tracker"
