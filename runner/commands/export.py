"""``python -m runner export``: a run's model as a file for other programs."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands import A_RUN, add_weights
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError, ExitCode, complain, printable
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.objects import is_address
from manyheads.runner.run.progress import working
from manyheads.runner.serve.formats import FORMATS, refuse_missing

HELP = "export a run's model for other programs, and check the file"


@dataclass(frozen=True)
class Exported(Answer):
    """A model as a file for other programs, which was loaded and compared with the model."""

    path: Annotated[Path | None, "the file; null if its outputs differ from the model's, so it was removed"]
    run: str
    weights: Annotated[str, "best or last"]
    format: str
    difference: Annotated[
        float | None,
        "the largest difference between the outputs of file and model, relative to the largest output",
    ]
    reason: Annotated[str, "what differs; empty if nothing does"] = ""

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if self.reason else ExitCode.DONE

    def show(self) -> None:
        if self.reason:
            complain(self.reason)
            return
        print(f"{printable(self.path)}: the {self.weights} weights of {self.run}")
        print(f"loaded again, its outputs differ from the model's by at most {self.difference:.1e} of the largest one")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=f"{A_RUN}, or the address of its copy, s3://...")
    parser.add_argument("trust", nargs="*", help="trust=[my_package]: allow its code in configs from others")
    parser.add_argument("--format", required=True, choices=FORMATS, help="the file's format")
    parser.add_argument("--out", help="the file; by default in the run's folder, or here for a run in object storage")
    add_weights(parser)


def run(arguments: argparse.Namespace) -> Exported:
    """Write the file and check it. Raises ConfigurationError."""
    packages, others = split_typed(arguments.trust)
    if others:
        raise ConfigurationError(f"{others[0]}: a model is exported unchanged. Allowed: trust=[my_package].")
    refuse_missing(arguments.format)
    with working(f"exporting to {arguments.format}", kept="no file was written"):
        from manyheads.runner.serve.rank.export import Differs, export
        from manyheads.runner.serve.rank.trained import load

        trained = load(arguments.run_folder, which=arguments.weights, trust=packages)
        run, suffix = arguments.run_folder, FORMATS[arguments.format].suffix
        default = Path(f"{trained.folder.name}{suffix}") if is_address(run) else trained.folder / f"model{suffix}"
        out = Path(arguments.out) if arguments.out else default
        about = (run if is_address(run) else str(trained.folder), trained.which, arguments.format)
        try:
            difference = export(trained, arguments.format, out)
        except Differs as error:
            return Exported(None, *about, difference=None, reason=str(error))
    return Exported(out, *about, difference=difference)
