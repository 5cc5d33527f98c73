"""A sweep made of copies of one run."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import OPTION
from manyheads.runner.run import yaml_text
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder

FILES = ("run.yaml", "provenance.json", "steps.csv", "epochs.csv", "result.json")


class WrittenSweep:
    """Jobs are added one by one, numbered from 0. ``ledger``: else it is as another Hydra launcher leaves it."""

    def __init__(self, folder: Path, source: RunFolder, *, ledger: bool = True, options: dict[str, Any] | None = None):
        self.folder, self.source = folder, source
        self.ledger = Ledger(folder) if ledger else None
        self.count = 0
        folder.mkdir(parents=True)
        if self.ledger:
            self.ledger.create(options or {})
        else:
            (folder / "multirun.yaml").write_text("")

    def job(
        self,
        *overrides: str,
        state: str = "completed",
        seconds: float | None = None,
        ranks: int = 1,
        repeat: int = 1,
        config: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
        **entry: Any,
    ) -> Path:
        """A job with these overrides, or another repeat of the last one. ``seconds``: of each epoch.

        config, result: changes of run.yaml by dotted key, and of result.json.
        """
        self.count += repeat == 1
        number = self.count - 1
        name = f"{number}" if repeat == 1 else f"{number}_repeat{repeat}"
        folder = self.folder / name
        folder.mkdir()
        if self.ledger:
            entry = {"signature": None if state == "skipped" else "0" * 16, **entry}
            self.ledger.write(Entry(number, name, list(overrides), repeat, state=state, **entry))
        (folder / ".hydra").mkdir()
        (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(list(overrides)))
        if state in ("completed", "interrupted", "failed"):
            for file in FILES:
                shutil.copy(self.source.path / file, folder)
            typed = {key.lstrip("+"): yaml.safe_load(value) for key, _, value in (o.partition("=") for o in overrides)}
            set_config(folder, {**typed, **(config or {}), "launcher.nproc_per_node": ranks})
            set_result(folder, {"status": state, "world_size": ranks, **(result or {})})
        if seconds is not None:
            set_seconds(folder, seconds)
        return folder


def set_config(folder: Path, changes: dict[str, Any]) -> None:
    """Change run.yaml by dotted keys; of a group, its option's name."""
    path = folder / "run.yaml"
    content = yaml_text.parse(path.read_text())
    for key, value in changes.items():
        *sections, leaf = (f"{key}.name" if key in GROUPS else key).split(".")
        section = content
        for name in sections:
            section = section.setdefault(name, {})
        section[leaf] = value
        if key in GROUPS and value in options(key):
            section[OPTION] = read_option(key, value).get(OPTION)
    path.write_text(yaml_text.dump(content))


def set_result(folder: Path, changes: dict[str, Any]) -> None:
    path = folder / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def set_column(path: Path, column: str, values: list[Any]) -> None:
    """Overwrite a column of a CSV, from the first row on; later rows keep what they have."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row, value in zip(rows, values, strict=False):
        row[column] = value
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def set_seconds(folder: Path, seconds: float) -> None:
    """Epochs of so many seconds, the first one five times as long."""
    epochs = folder / "epochs.csv"
    set_column(epochs, "train_seconds", [5 * seconds, seconds, seconds])
    set_column(epochs, "samples_per_second", [80 / (5 * seconds), 80 / seconds, 80 / seconds])
