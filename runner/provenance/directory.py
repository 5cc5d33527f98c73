"""Where a run was started, so that the user's packages are found there when it is resumed from another directory."""

import os
from contextlib import suppress

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import STARTED_IN
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.own import is_own_directory


def find_where_started(*folders: RunFolder) -> None:
    """Let packages be found, behind those of the working directory, where the first of these runs was started.

    One that the user did not start himself says nothing.
    """
    for folder in folders:
        with suppress(OSError, ConfigurationError):
            recorded = read_json(folder.provenance)
            directory = recorded.get("directory")
            if is_own_directory(folder, directory, recorded.get("directory_seal")) and os.path.isdir(str(directory)):
                os.environ[STARTED_IN] = str(directory)
                return
