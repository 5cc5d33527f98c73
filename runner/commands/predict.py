"""``python -m runner predict``: predict the classes of image files, or the target of a table's rows."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands import A_RUN, add_weights
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option import locate
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.progress import working
from manyheads.runner.wording import counted

HELP = "write the predictions for image files, or for the rows of a table, into a table"


@dataclass(frozen=True)
class Predicted(Answer):
    """A table of predictions."""

    path: Annotated[Path, "the table, a CSV file"]
    files: Annotated[int, "images that were found, or rows"]
    unreadable: Annotated[int, "of these, files that could not be read: their rows are empty"]
    weights: Annotated[str, "best or last"]
    run: str
    rows: Annotated[bool, "whether they are rows of a table"] = False

    def show(self) -> None:
        left = f", of which {self.unreadable:,} could not be read" if self.unreadable else ""
        files = counted(self.files, "row" if self.rows else "file")
        print(f"{printable(self.path)}: {files}{left}, with the {self.weights} weights of {self.run}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument("images", nargs="+", help="image files, or folders of them, or a table; and trust=[my_package]")
    parser.add_argument("--out", default="predictions.csv", help="the table (predictions.csv)")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda, cuda:1")
    add_weights(parser)


def run(arguments: argparse.Namespace) -> Predicted:
    """Write the table. Unreadable files are named, and do not change the exit code. Raises ConfigurationError."""
    packages, images = split_typed(arguments.images)
    if not images:
        raise ConfigurationError("there are no images to predict. Name image files, or folders of them.")
    with working("loading the model", kept=f"{arguments.out} was not written"):
        from manyheads.runner.serve.rank.predict_images import predict_files
        from manyheads.runner.serve.rank.trained import load

        trained = load(arguments.run_folder, which=arguments.weights, trust=packages)
    is_table = trained.description.table is not None
    predict = locate.load("manyheads.runner.serve.rank.predict_rows.predict_rows") if is_table else predict_files
    files, unreadable = predict(trained, images, Path(arguments.out), device=arguments.device)
    return Predicted(Path(arguments.out), files, unreadable, trained.which, str(trained.folder), is_table)
