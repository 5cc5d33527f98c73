"""Declarations of data=table."""

import inspect
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from manyheads.runner.data.data_option import DataOption
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.option.locate import missing, signature
from manyheads.runner.option.rules import (
    AUTO,
    NULL,
    PATH,
    TEXT,
    KeyKind,
    Rule,
    choice,
    either,
    list_of,
    text,
)
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted

if TYPE_CHECKING:
    from manyheads.runner.data.table.table import Table

NUMBER, BOOLEAN, DATE, CATEGORY, IGNORED = KINDS = ("number", "boolean", "date", "category", "ignore")
OF_TASK = {"regression": NUMBER, "classification": CATEGORY}
MOST_IN_HALF = 256  # whole numbers up to here are exact in bfloat16
OF_COLUMNS = Rule(
    f"names of columns, each with one of {', '.join(KINDS)} or a date's format, such as 'date %d.%m.%Y'",
    lambda v: isinstance(v, dict) and all(kind in KINDS or str(kind).startswith(f"{DATE} %") for kind in v.values()),
    {
        "type": "object",
        "additionalProperties": {"anyOf": [{"enum": [*KINDS]}, {"type": "string", "pattern": f"^{DATE} %"}]},
    },
    KeyKind.TEXT,
)


class TableOption(DataOption):
    """Reads the files before any rank starts, so that what does not fit is refused at once."""

    most_workers = 0
    rules: ClassVar = {
        "root": either(PATH, list_of(PATH)),
        "target": TEXT,
        "columns": OF_COLUMNS,
        "group": TEXT,
        "time": TEXT,
        "missing": list_of(TEXT),
        "missing_target": choice("error", "skip"),
        "delimiter": either(AUTO, text("a character", ".|\t")),
        "decimal": choice(".", ","),
        "encoding": either(AUTO, PATH, NULL),
    }
    root: str | list[str]  # type: ignore[assignment]
    columns: dict[str, str]
    encoding: str | None

    @property
    def draws(self) -> bool:
        return False  # it divides its rows itself, by what the training rows of a fold say

    def own_validation(self) -> bool:
        return "val" in self.table.files

    def unavailable(self) -> str | None:
        return missing("pyarrow", extra="table")

    @property
    def column(self) -> str:
        """The column to predict. Raises ConfigurationError, with the columns that there are, if it is not set."""
        column: str | None = self.section["target"]
        if column is None:
            raise ConfigurationError(
                f"data.target is not set. Set it to the column to predict, one of {self.table.column_names}.",
                key="data.target",
            )
        return column

    @property
    def table(self) -> "Table":
        """The table, of which nothing is read before it is asked."""
        from manyheads.runner.data.table.table import Table  # needs pyarrow

        return Table(**{key: self.section[key] for key in inspect.signature(Table).parameters})

    def task(self) -> str:
        kind = self.columns.get(self.column) or self.table.target_kind
        return next(task for task, taken in OF_TASK.items() if (taken == NUMBER) == (kind == NUMBER))

    def resolved_keys(self) -> Section:
        if isinstance(self.root, list):
            return {"root": [self._absolute(root) for root in self.root]}
        return super().resolved_keys()

    def resolved(self, run: RunConfig) -> RunConfig:
        run, keys = super().resolved(run), dict[str, Any]()
        if self.encoding == "auto":
            keys["encoding"] = _encoding_of(run.checkpoint.load)
        column, wanted = self.column, OF_TASK.get(run.task.name)
        typed = self.columns.get(column)
        if wanted is not None and typed is not None and (typed == NUMBER) != (wanted == NUMBER):
            raise ConfigurationError.at(
                f"data.columns.{column}",
                typed,
                f": task={run.task.name} needs a target that is a {wanted}. Set it to that, or leave task out.",
            )
        if wanted is not None:
            keys["columns"] = {**self.columns, column: wanted}
        if run.trainer.evaluate_only and (encoding := _encoding_of(run.checkpoint.load)) is not None:
            keys["encoding"] = encoding  # rows are encoded as in training
        return run.changed(data=keys)

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        table = self.table
        for split in ("train", "val", *(("test",) if run.trainer.test else ())):
            table.samples(split)
        if table.categories and "categories" not in signature(run.model.kind).parameters:
            warn(
                f"model={run.model.title} gets the codes of {counted(len(table.categories), 'category', 'categories')} "
                "as numbers, since its constructor has no argument categories: docs/your-table.md has one that embeds "
                "them"
            )
        most = max(table.categories, default=0)
        if most > MOST_IN_HALF and run.precision.half_weights(on_gpus=run.on_gpus) is not None:
            raise ConfigurationError.at(
                "precision",
                run.precision.name,
                f": a column has {most:,} categories, whose numbers half precision cannot tell apart. Set "
                "precision=bf16 or amp, which keep inputs in single precision.",
            )

    def sources(self) -> dict[str, Path]:
        roots = self.root if isinstance(self.root, list) else [self.root]
        return {f"root_{number}" if number else "root": Path(root) for number, root in enumerate(roots)}


def _encoding_of(weights: str | None) -> str | None:
    """The model.json of the run that wrote a checkpoint, if that was trained on a table; else None."""
    if weights is None:
        return None
    path = RunFolder.of_checkpoint(Path(weights).expanduser().absolute()).description
    with suppress(OSError, ConfigurationError):
        if read_json(path).get("table") is not None:
            return str(path)
    return None
