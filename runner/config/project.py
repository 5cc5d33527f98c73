"""The user's own project: where its folder of configs is."""

import tomllib
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.folder import Folder


def own_project(folder: Path) -> Path:
    """The folder of configs that trusting ``folder`` applies to: that of its project, else the folder itself."""
    return (conf_of(folder) or folder).resolve()


def conf_of(folder: Path) -> Path | None:
    """A project's folder of configs: [tool.manyheads] conf in its pyproject.toml, else its conf/.

    Raises ConfigurationError if the named folder does not exist, or is not inside the project.
    """
    with Folder(folder.resolve()) as project:
        try:
            content: Any = tomllib.loads(project.read("pyproject.toml", most=10**6).decode())
            named = content.get("tool", {}).get("manyheads", {}).get("conf")
        except (OSError, ValueError, AttributeError, RecursionError, ConfigurationError):  # its other readers report it
            named = None
        try:
            with project.child(named if isinstance(named, str) else "conf") as conf:
                if conf.inode == project.inode:
                    raise ValueError("not a folder in it")
                return conf.path
        except (OSError, ValueError, ConfigurationError):
            if named is None:
                return None
            raise ConfigurationError(
                f"{printable(folder / 'pyproject.toml')}: [tool.manyheads] conf = {printable(repr(named))} is not a "
                "folder in the project. Allowed: the name of one, without .. and without links."
            ) from None
