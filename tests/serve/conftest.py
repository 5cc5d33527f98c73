"""Runs that are made once, to be read only: of photos, of digits, and of a model and data set of the user's own."""

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


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory) -> Session:
    """A run on digits, enlarged from 8 to 16 pixels and repeated on three channels."""
    overrides = ("data=digits", "data.image_size=16", "data.batch_size=64", "trainer.epochs=1", "trainer.max_steps=4")
    return train(tmp_path_factory.mktemp("run") / "digits", small(*overrides))


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """``python -m runner`` in the test's own process, in its temporary folder."""

    def run(*arguments: object) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["runner", *map(str, arguments)])
        capfd.readouterr()
        return Done(main(), *capfd.readouterr())

    return run
