"""MLflow's store of runs: a server, or a database or folder on this machine."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run import seal

if TYPE_CHECKING:
    from mlflow import MlflowClient

VARIABLE = "MLFLOW_TRACKING_URI"
DATABASE, FOLDER = "mlflow.db", "mlruns"  # MLflow's own defaults, in the working directory
# The caller tries again later; the client's own retries would take four minutes if a server is gone, and twenty if it
# hangs.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
SILENCE = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}


class Store:
    """An MLflow store. ``uri``: its address, relative to the present working directory; None for MLflow's default.

    A store on this machine decides where the files of its runs are written. So it must have been created by one of the
    user's own runs, unless the user named it, or trusts its folder, in which case the process still works there.
    """

    def __init__(self, uri: str | None):
        self._here = Path.cwd()
        named = uri or os.environ.get(VARIABLE)
        self._uri = absolute(named) if named else None

    def client(self) -> "MlflowClient":
        """Open the store. Raises ConfigurationError for one that may be somebody else's, and whatever MLflow raises."""
        for name, value in (PATIENCE | SILENCE).items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        if self._uri is None and Path.cwd() == self._here:
            return MlflowClient()
        with contextlib.chdir(self._here):  # a database puts its files into the working directory
            return MlflowClient(self._uri or self._own())

    def _own(self) -> str:
        path = self._here / DATABASE
        if not seal.is_own_place(path):
            if any(os.path.lexists(name) for name in (DATABASE, FOLDER)):
                raise ConfigurationError(
                    f"{DATABASE} or {FOLDER} in this folder may be somebody else's. Set logger.mlflow.tracking_uri, or "
                    f"run once: {invocation.command('trust', '.')}"
                )
            seal.trust(path, None)
        return f"sqlite:///{path}"


def absolute(uri: str) -> str:
    """An MLflow address that does not depend on the working directory."""
    for scheme in ("sqlite:///", "file:"):
        if uri.startswith(scheme) and "://" not in uri.removeprefix("sqlite:///"):
            return scheme + os.path.abspath(uri.removeprefix(scheme))
    is_folder = ":" not in uri and not uri.startswith("databricks")
    return os.path.abspath(uri) if is_folder else uri
