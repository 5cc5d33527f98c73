"""A rank that imports the user's own packages from another revision of their repository."""

import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NoReturn

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


class AtRevision(MetaPathFinder):
    """Imports top-level packages of the ``project`` from ``folders``, and others, such as torch, as usual."""

    def __init__(self, folders: Sequence[str], project: str):
        self._folders, self._project = [*folders], Path(project)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or fullname in sys.stdlib_module_names:
            return None
        usual = PathFinder.find_spec(fullname)
        places = [] if usual is None else [usual.origin, *(usual.submodule_search_locations or ())]
        if any(path and not self._is_own(Path(path)) for path in places):
            return None
        return PathFinder.find_spec(fullname, self._folders)

    def _is_own(self, path: Path) -> bool:
        """Whether it is the project's own code, rather than installed in an environment within its folder."""
        is_installed = {"site-packages", "dist-packages"} & {*path.parts}
        return path.resolve().is_relative_to(self._project) and not is_installed


def main(path: str) -> NoReturn:
    """Be one rank of a run: call the main of the module that its task names. Ends the process."""
    task = CodeTask.read()
    if task.folders:
        sys.meta_path.insert(0, AtRevision(task.folders, task.project))
    sys.exit(importlib.import_module(task.rank).main(path))


if __name__ == "__main__":
    main(sys.argv[1])
