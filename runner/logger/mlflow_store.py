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
# The caller tries again later; the client alone would take four minutes over a server that is gone, and twenty
# over one that hangs.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
SILENCE = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}


class Store:
    """The store at an address, which is relative to the folder that this process now stands in; None for the default.

    A store on this machine says where the files of its runs go: anywhere. So unless the user has named it, or marked
    the folder as his own, which a process then has not left, it must be one that a run of his has created.
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
        with contextlib.chdir(self._here):  # a database has its files next to where it is opened
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
    """An address of MLflow's that means the same wherever a process stands."""
    for scheme in ("sqlite:///", "file:"):
        if uri.startswith(scheme) and "://" not in uri.removeprefix("sqlite:///"):
            return scheme + os.path.abspath(uri.removeprefix(scheme))
    is_folder = ":" not in uri and not uri.startswith("databricks")
    return os.path.abspath(uri) if is_folder else uri
