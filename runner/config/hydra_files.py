"""Hydra's own files of a run, written by us through the guard: no link that others plant meanwhile is followed."""

import logging
import os
from io import TextIOWrapper
from pathlib import Path
from textwrap import indent
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, read_write

from manyheads.runner.run import yaml_text
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.frozen_config import text_of


class LogFile(logging.FileHandler):
    """A log's file that is opened through the guard. Raises as ``Folder.plain``, for a link as well."""

    def _open(self) -> TextIOWrapper:
        how: Any = {"encoding": self.encoding, "errors": self.errors, "opener": no_link}
        return cast(TextIOWrapper, open(self.baseFilename, self.mode, **how))


def guard_logs(hydra: DictConfig) -> None:
    """Let a job's log files, as Hydra's section configures them, be opened through the guard."""
    for handler in (OmegaConf.select(hydra, "job_logging.handlers") or {}).values():
        if handler.get("class") == "logging.FileHandler":
            with read_write(handler):
                handler["class"] = f"{LogFile.__module__}.{LogFile.__name__}"


def without_links(path: Path) -> Path:
    """The path with links on the way followed, once, since the guard follows none; unchanged if there are none."""
    return path if path.resolve() == Path(os.path.abspath(path)) else path.resolve()


def save_composed(folder: Path, composed: DictConfig) -> str:
    """Write the files that Hydra writes to ``.hydra`` when a job starts; returns the text of config.yaml.

    Raises ConfigurationError for links, and OSError.
    """
    content: Any = OmegaConf.to_container(composed, enum_to_str=True)
    hydra = content.pop("hydra")
    texts = {
        "config": text_of(content),
        "hydra": "hydra:\n" + indent(text_of(hydra), "  "),
        "overrides": yaml_text.dump(hydra["overrides"]["task"]),
    }
    make_folder(folder)
    for name, text in texts.items():
        with open(folder / f"{name}.yaml", "w", encoding="utf-8", opener=no_link) as file:
            file.write(text)
    return texts["config"]
