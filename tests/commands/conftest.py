"""Runs and commands, as for whatever else is done with a trained model."""

from tests.serve.conftest import command, photo_run, photos  # noqa: F401
