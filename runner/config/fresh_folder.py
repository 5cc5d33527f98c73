"""Chooses a fresh folder for each run and sweep, before Hydra writes anything, and writes Hydra's own files there.

They are written through the guard: no link that others plant meanwhile is followed.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from io import TextIOWrapper
from pathlib import Path
from textwrap import indent
from typing import Any, NoReturn, cast

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, read_write

from manyheads.runner.config.command_line import typed_values
from manyheads.runner.config.lookup import option_of
from manyheads.runner.config.quoting import readable
from manyheads.runner.errors import ConfigurationError, Ended
from manyheads.runner.machine.ownership import open_to_others
from manyheads.runner.option.declared import declared
from manyheads.runner.run import yaml_text
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import fresh_folder, make_folder
from manyheads.runner.run.frozen_config import text_of
from manyheads.runner.run.run_folder import LEDGER, RUN_DIR, SWEEP_DIR, RunFolder


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


OWN_PLUGINS = "hydra_plugins.manyheads."
BASIC_SWEEPER = f"{OWN_PLUGINS}combinations.Combinations"
RESUMED = "MANYHEADS_RESUMED_SEARCH"  # the folder of a search that this process resumes


def as_typed(overrides: Any) -> list[str]:
    """Overrides as typed, with their interpolations unresolved."""
    return cast(list[str], OmegaConf.to_container(overrides, resolve=False))


def refuse(message: str) -> NoReturn:
    """End the process from within a callback, whose ordinary exceptions Hydra turns into warnings."""
    raise Ended(ConfigurationError.exit_code, ConfigurationError(message))


def is_met_elsewhere(launcher: Mapping[Any, Any]) -> bool:
    """Whether this command joins a run whose parent is on another machine, by the launcher's section.

    The project's own declaration of the launcher counts, since it is not known yet whether the user trusts this
    config's code. Raises ConfigurationError.
    """
    rendezvous = launcher.get("rendezvous")
    if rendezvous is None and int(os.environ.get("SLURM_PROCID", "0")) == 0:
        return False
    section = {"rendezvous": rendezvous} if rendezvous is not None else option_of("launcher", dict(launcher)) or {}
    return bool(declared("launcher", section).is_met_elsewhere())


class FreshFolder(Callback):
    """A Hydra callback that gives every run its own folder, and writes Hydra's files there instead of Hydra.

    A folder that the user named and that already holds a run is refused; one named after the time gets a new name if
    another was created in the same second. Hydra would follow links that others put into the folder meanwhile.
    """

    output_subdir: str | None = None  # of a single run: .hydra, unless the user has changed that
    folder = Path()  # of a single run, without links

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        for override in as_typed(config.hydra.overrides.hydra):
            if override.lstrip("+").startswith("hydra.launcher."):
                refuse(f"{override} is for sweeps, and this is a single run. Add -m, or leave it out.")
        if is_met_elsewhere(config.get("launcher", {})):  # the parent on another machine chooses its folder
            from manyheads.runner.run import scratch  # other runs need it only later

            with read_write(config.hydra):
                config.hydra.run.dir = str(scratch.of_process() / "joined")
                config.hydra.output_subdir = None
            return
        self._settle(config, "run", lambda path: RunFolder(path).holds_run())
        self.folder, self.output_subdir = Path(config.hydra.run.dir).resolve(), config.hydra.output_subdir
        guard_logs(config.hydra)
        with read_write(config.hydra):
            config.hydra.output_subdir = None

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        if self.output_subdir is None:  # or a job of a sweep, whose files the launcher writes
            return
        with read_write(config.hydra):
            config.hydra.output_subdir = self.output_subdir
        folder = self.folder / self.output_subdir
        try:
            save_composed(folder, config)
        except (OSError, ConfigurationError) as error:
            refuse(f"{folder} can't be written: {error}")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self._settle(config, "sweep", _holds_sweep)
        _refuse_open(config.hydra)

    @staticmethod
    def _settle(config: DictConfig, kind: str, is_taken: Callable[[Path], bool]) -> None:
        section = config.hydra[kind]
        path = Path(section.dir)
        named = any(override.startswith(f"hydra.{kind}.dir=") for override in as_typed(config.hydra.overrides.hydra))
        try:
            if named and is_taken(path) and os.environ.get(RESUMED) != str(path):
                refuse(f"hydra.{kind}.dir={path} already holds a {kind}. Name another folder, or leave it out.")
            if named:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path = fresh_folder(path)
            with read_write(config.hydra):
                section.dir = str(without_links(path))
        except OSError as error:
            refuse(f"hydra.{kind}.dir={path} can't be created: {error.strerror}. Name a folder that can.")


def _refuse_open(hydra: DictConfig) -> None:
    """Refuse sweepers and launchers of others in a folder that others may write to: they follow links there."""
    for part in ("sweeper", "launcher"):
        if str(OmegaConf.select(hydra, f"{part}._target_")).startswith(OWN_PLUGINS):
            continue
        if (others := open_to_others(Path(hydra.sweep.dir))) is not None:
            name = hydra.runtime.choices[f"hydra/{part}"]
            remedy = f"Name a hydra.sweep.dir where only you can write, or leave out hydra/{part}"
            refuse(f"hydra/{part}={name} would follow links in {others}, where others may write. {remedy}.")


def _holds_sweep(path: Path) -> bool:
    """Whether a folder holds a sweep; one refused before its first job leaves only multirun.yaml."""
    if (path / "multirun.yaml").exists() and any(child.is_dir() for child in path.iterdir()):
        return True
    return (path / LEDGER).exists() or (path / "0").exists()


_BELOW = {RUN_DIR: Path("outputs"), SWEEP_DIR: Path("outputs/sweeps")}  # as in conf/config.yaml


def named_folder(overrides: Iterable[str], key: str = RUN_DIR) -> Path | None:
    """The folder that the overrides name, the last of several; None if they name none. key: RUN_DIR or SWEEP_DIR."""
    named = typed_values(readable(override) for override in overrides if override.startswith(key))
    return next((Path(str(folder)) for folder in named.values()), None)


def new_folder(overrides: Iterable[str], key: str = RUN_DIR) -> Path:
    """The folder that the overrides name, else a fresh one, which it creates. key: RUN_DIR or SWEEP_DIR."""
    named = named_folder(overrides, key)
    return named or fresh_folder(_BELOW[key] / time.strftime("%Y-%m-%d") / time.strftime("%H-%M-%S"))
