"""Runs that are made once, to be read only, and commands in the test's own process."""

import sys
from pathlib import Path

import pytest

from manyheads.runner.__main__ import main
from manyheads.runner.loop.session import Session
from tests.conftest import Done
from tests.data.conftest import SIDE, save_photos
from tests.in_process import small, train

QUICK = ("trainer.epochs=1", "trainer.max_steps=3", "data.batch_size=4")
OF_PHOTOS = ("data=imagefolder", f"data.image_size={SIDE}", "data.num_workers=0", *QUICK)


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """train/ and val/ of three classes; not to be changed."""
    return save_photos(tmp_path_factory.mktemp("served_photos"))


@pytest.fixture(scope="session")
def photo_run(photos, tmp_path_factory) -> Session:
    """A run on photos; its loaders are there to compare with."""
    return train(tmp_path_factory.mktemp("run") / "photos", small(f"data.root={photos}", *OF_PHOTOS))


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """``python -m runner`` in the test's own process, in its temporary folder."""

    def run(*arguments: object) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["runner", *map(str, arguments)])
        capfd.readouterr()
        return Done(main(), *capfd.readouterr())

    return run
