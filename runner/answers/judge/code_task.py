"""The task of a rank whose code may be another revision's: a variable, since others may be able to replace files."""

import json
import os
from dataclasses import asdict, dataclass

CODE = "MANYHEADS_JUDGED_CODE"


@dataclass(frozen=True)
class CodeTask:
    """To import the packages of the ``project`` from ``folders``. ``rank``: the module whose ``main`` is the rank."""

    rank: str
    project: str
    folders: list[str]

    def variables(self) -> dict[str, str]:
        """The variable of the ranks' environment that holds the task."""
        return {CODE: json.dumps(asdict(self))}

    @classmethod
    def read(cls) -> "CodeTask":
        """The task of this rank."""
        return cls(**json.loads(os.environ[CODE]))
