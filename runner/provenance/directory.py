"""Finds the user's packages in the directory where a run was started, when it is resumed from another directory."""

import os
from contextlib import suppress

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import STARTED_IN
from manyheads.runner.run.run_folder import RunFolder


def find_where_started(*folders: RunFolder) -> None:
    """Add the directory where the first of these runs was started to the import path, after the working directory.

    Runs that the user did not start are ignored.
    """
    for folder in folders:
        with suppress(OSError, ConfigurationError):
            directory = str(read_json(folder.provenance).get("directory"))
            if folder.owns(directory=directory) and os.path.isdir(directory):
                os.environ[STARTED_IN] = directory
                return
