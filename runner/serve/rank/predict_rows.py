"""``manyheads predict`` for a model that was trained on a table: a row of predictions for each row of a file."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import torch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import cell
from manyheads.runner.run.files import whole_file
from manyheads.runner.serve.rank.predict_images import header, refuse_folder
from manyheads.runner.serve.rank.trained import TOP
from manyheads.runner.serve.rank.trained_table import TrainedTable, cells


def predict_rows(trained: TrainedTable, paths: Sequence[str], out: Path, *, device: str = "auto") -> tuple[int, int]:
    """Write the predictions for a file's rows to a table ``out``, in the file's order, with the target if it has it.

    Returns the number of rows, and 0. Raises ConfigurationError.
    """
    if len(paths) > 1:
        raise ConfigurationError(f"{len(paths)} tables are named, and one is predicted at a time. Name one.")
    refuse_folder(out)
    trained.model.to(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    texts, target = trained.texts(paths[0]), trained.encoding.target
    predictions = trained.values(trained.rows(texts))
    names = ["row", "prediction"] if target.classes is None else ["row", *header(min(TOP, len(target.classes)))[1:]]
    actual = texts.columns[target.name].to_pylist() if target.name in texts.columns else None
    with whole_file(out.parent.resolve() / out.name) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*names, *([] if actual is None else [cell(target.name)])])
        for number, prediction in enumerate(predictions):
            end = [] if actual is None else ["" if actual[number] is None else cell(actual[number])]
            writer.writerow([number + 1, *map(cell, cells(prediction)), *end])
        text.flush()
        text.detach()
    return len(predictions), 0
