"""Photos that are added to a run's folder, or removed from it, before the run is resumed, measured or audited."""

import shutil
import sys
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError, ExitCode
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.changed_data import refuse_changed
from manyheads.runner.provenance.provenance import record
from manyheads.runner.run.run_folder import RunFolder
from tests.commands.conftest import OF_PHOTOS, command  # noqa: F401
from tests.conftest import RUN, execute
from tests.data.conftest import save_photos
from tests.in_process import small, train

DRAWN = "data.val_fraction=0.3"
LEAKS = "the run was trained on some of them"


def trained(folder: Path, photos: Path, *overrides: str) -> RunFolder:
    """A run of three updates on these photos, with a record of them."""
    config = small(*OF_PHOTOS, "trainer.epochs=4", f"data.root={photos}", *overrides)
    run = RunFolder(folder)
    run.write_config(config)
    record(run, RunConfig.of(config))
    train(folder, config)
    return run


def add_photo(photos: Path) -> None:
    shutil.copy(photos / "train/cat/0.jpg", photos / "train/cat/new.jpg")


def refuse(run: RunFolder) -> None:
    refuse_changed(run, RunConfig.read(run).data)


@pytest.fixture
def own_photos(tmp_path) -> Path:
    return save_photos(tmp_path / "photos")


@pytest.fixture
def drawn(tmp_path, own_photos) -> RunFolder:
    return trained(tmp_path / "run", own_photos, DRAWN)


@pytest.mark.parametrize("change", [add_photo, lambda photos: (photos / "train/cat/0.jpg").unlink()])
def test_drawn_validation_samples_that_were_trained_on_are_refused(drawn, own_photos, change):
    refuse(drawn)
    change(own_photos)
    number = len([*own_photos.glob("*/*/*.jpg")])
    expected = rf"there were 24 files .*, now there are {number} files .*Restore"
    with pytest.raises(ConfigurationError, match=expected) as raised:
        refuse(drawn)
    assert f"checkpoint.load={drawn}" in str(raised.value)


def test_validation_samples_of_their_own_are_warned_of(tmp_path, own_photos, capsys):
    run = trained(tmp_path / "run", own_photos)
    add_photo(own_photos)
    refuse(run)
    printed = capsys.readouterr().err
    assert printed.count("warning: the data has changed") == 1
    assert LEAKS not in printed


def test_a_run_without_a_checkpoint_starts_over(drawn, own_photos, capsys):
    shutil.rmtree(drawn.checkpoints)
    add_photo(own_photos)
    refuse(drawn)
    assert "warning: the data has changed" in capsys.readouterr().err


def test_the_commands_say_so(drawn, own_photos, command):  # noqa: F811
    add_photo(own_photos)
    longer = command("resume", drawn.path, "trainer.max_steps=5", "hydra.run.dir=longer")
    assert (longer.code, "now there are 25 files" in longer.err) == (2, True), longer
    measured = command("evaluate", drawn.path, "hydra.run.dir=measured")
    assert measured.code == 0, measured
    assert measured.err.count(LEAKS) == 1
    audited = command("audit", drawn.path)
    assert audited.code == ExitCode.NO, audited
    assert LEAKS in audited.out
    drawn.result.unlink()  # it was interrupted
    resumed = command("resume", drawn.path)
    assert (resumed.code, "now there are 25 files" in resumed.err) == (2, True), resumed


@pytest.mark.parametrize(
    "overrides",
    [["data.val_fraction=0.4"], ["data.split_seed=1"], ["data.val_fraction=null", "data.folds=3", "data.fold=0"]],
)
def test_samples_drawn_for_validation_in_another_way_are_refused(drawn, overrides, command):  # noqa: F811
    longer = command("resume", drawn.path, "trainer.max_steps=5", *overrides, "hydra.run.dir=longer")
    assert (longer.code, LEAKS in longer.err) == (2, True), longer
    assert not Path("longer").exists()
    resumed = f"checkpoint.resume={drawn.last_checkpoint}"
    root = drawn.read_config()["data"]["root"]
    words = (*OF_PHOTOS, f"data.root={root}", DRAWN, *overrides, resumed, "trainer.epochs=4")
    trained = execute(sys.executable, str(RUN), *words, cwd=Path.cwd())
    assert (trained.code, LEAKS in trained.err) == (2, True), trained


def test_fewer_of_the_same_validation_samples_are_not(drawn, command):  # noqa: F811
    longer = command("resume", drawn.path, "trainer.max_steps=5", "data.val_fraction=0.27", "hydra.run.dir=longer")
    assert longer.code == 0, longer


def test_the_same_data_elsewhere_is_the_same(drawn, own_photos, tmp_path, command):  # noqa: F811
    own_photos.rename(tmp_path / "moved")
    overrides = ("trainer.max_steps=4", f"data.root={tmp_path / 'moved'}", "hydra.run.dir=longer")
    longer = command("resume", drawn.path, *overrides)
    assert longer.code == 0, longer
    assert "the data has changed" not in longer.err


def test_an_evaluation_of_a_copy_is_warned_of(command, tmp_path, own_photos):  # noqa: F811
    """All of its samples are measured, of which most trained the model."""
    run = trained(tmp_path / "run", own_photos / "train", DRAWN)
    shutil.copytree(own_photos / "train", tmp_path / "copy")
    for folder, is_copy in (("copy", True), ("photos/val", False)):
        done = command("evaluate", run, f"data.root={tmp_path / folder}", f"hydra.run.dir={tmp_path / folder}-measured")
        assert done.code == 0, done.err
        assert ("copy has as many files as the data that" in done.err) == is_copy
