"""Runs that are made once, to be read only: of photos, of digits, and of a model and data set of the user's own."""

import pytest

from manyheads.runner.loop.session import Session
from tests.commands.conftest import OF_PHOTOS, QUICK, command, photo_run, photos  # noqa: F401
from tests.in_process import small, train


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory) -> Session:
    """A run on digits, enlarged from 8 to 16 pixels and repeated on three channels."""
    overrides = ("data=digits", "data.image_size=16", "data.batch_size=64", "trainer.epochs=1", "trainer.max_steps=4")
    return train(tmp_path_factory.mktemp("run") / "digits", small(*overrides))
