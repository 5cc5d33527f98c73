"""A table as a file."""

from pathlib import Path

import pytest

from tests.commands.conftest import command  # noqa: F401
from tests.data.table.rows import houses, save


@pytest.fixture
def table(tmp_path) -> Path:
    return save(tmp_path / "houses.csv", houses())
