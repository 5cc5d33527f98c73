"""``manyheads predict`` for a model that was trained on a table: a row of predictions for each row of a file."""

from collections.abc import Sequence
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import cell
from manyheads.runner.serve.rank.predict_images import header, move, refuse_folder, table
from manyheads.runner.serve.rank.trained import TOP
from manyheads.runner.serve.rank.trained_table import TrainedTable, cells


def predict_rows(trained: TrainedTable, paths: Sequence[str], out: Path, *, device: str = "auto") -> tuple[int, int]:
    """Write the predictions for a file's rows to a table ``out``, in the file's order, with the target if it has it.

    Returns the number of rows, and 0. Raises ConfigurationError.
    """
    if len(paths) > 1:
        raise ConfigurationError(f"{len(paths)} tables are named, and one is predicted at a time. Name one.")
    refuse_folder(out)
    move(trained, device)
    texts, target = trained.texts(paths[0]), trained.encoding.target
    predictions = trained.values(trained.rows(texts))
    names = ["row", "prediction"] if target.classes is None else ["row", *header(min(TOP, len(target.classes)))[1:]]
    actual = texts.columns[target.name].to_pylist() if target.name in texts.columns else None
    with table(out) as writer:
        writer.writerow([*names, *([] if actual is None else [cell(target.name)])])
        for number, prediction in enumerate(predictions):
            end = [] if actual is None else ["" if actual[number] is None else cell(actual[number])]
            writer.writerow([number + 1, *map(cell, cells(prediction)), *end])
    return len(predictions), 0
