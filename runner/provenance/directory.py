"""Finds the user's packages in the directory where a run was started, when it is resumed from another directory."""

import os
from contextlib import suppress

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import STARTED_IN
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.own import is_own_directory


def find_where_started(*folders: RunFolder) -> None:
    """Add the directory where the first of these runs was started to the import path, after the working directory.

    Runs that the user did not start are ignored.
    """
    for folder in folders:
        with suppress(OSError, ConfigurationError):
            recorded = read_json(folder.provenance)
            directory = recorded.get("directory")
            if is_own_directory(folder, directory, recorded.get("directory_seal")) and os.path.isdir(str(directory)):
                os.environ[STARTED_IN] = str(directory)
                return
