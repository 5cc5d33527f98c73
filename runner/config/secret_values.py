"""Keys and passwords do not belong in a run config, which run folders, ledgers, pages and trackers show."""

import re
from collections.abc import Iterable
from typing import Any

from manyheads.runner.errors import ConfigurationError

_KEY = re.compile(
    r"(.*_)?(passw(or)?d|passphrase|pwd|secret|credentials?|jwt)|(.*_)?(api|access|secret|private|auth)_?(key|token)|token",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"\w+://[^/@\s:]*:[^/@\s]+@")  # user and password


def refuse_secrets(values: Iterable[tuple[str, Any]]) -> None:
    """Raises ConfigurationError for a value that looks like a key or a password. values: dotted keys with values."""
    for key, value in values:
        name = key.rpartition(".")[2]
        if isinstance(value, str) and value and "${" not in value and (_KEY.fullmatch(name) or _IN_URL.search(value)):
            variable = name.upper() if _KEY.fullmatch(name) else "MY_PASSWORD"
            raise ConfigurationError(
                f"{key}=*** looks like a key or a password, and would be recorded in the run's folder, pages and "
                f"trackers. Nothing was started. Keep it in the environment: remove {key}, export {variable}=..., and "
                f'read os.environ["{variable}"] in the class that needs it.',
                key=key,
            )
