"""``manyheads init``: write an experiment for the model and the data set of an existing repository."""

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands.init.choices import named
from manyheads.runner.commands.init.draft_experiment import Draft, commands, draft, find
from manyheads.runner.config.config_schema import SCHEMA
from manyheads.runner.errors import ConfigurationError, ExitCode, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.files import make_folder, write_whole
from manyheads.runner.trust.look import look, screen
from manyheads.runner.wording import is_confirmed, tell

HELP = "in an existing repository: find models and data sets, and write an experiment for them"


@dataclass(frozen=True)
class Initialized(Answer):
    """An experiment for an existing repository."""

    models: Annotated[list[str], "the models that were found, as file.py:Class; the most likely first"]
    data_sets: Annotated[list[str], "likewise the data sets"]
    scripts: Annotated[list[str], "training scripts"]
    experiment: Annotated[str | None, "its name; null if a model or a data set is still to be chosen"] = None
    is_written: Annotated[bool, "false if the user declined, or was not asked"] = False
    files: Annotated[list[str], "the paths of its files"] = field(default_factory=list)
    texts: Annotated[dict[str, str], "their content by path, without the JSON Schema"] = field(default_factory=dict)
    notes: Annotated[list[str], "what is still to be done"] = field(default_factory=list)
    commands: Annotated[list[str], "what to try"] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.is_written else ExitCode.NO

    def show(self) -> None:
        if not self.is_written:
            print("nothing has changed")
            return
        print("Try it:")
        for command in self.commands:
            print(f"  {command}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", nargs="?", default=".", help="the repository; by default the working directory")
    parser.add_argument("--script", metavar="FILE.py", help="the training script; otherwise you are asked")
    parser.add_argument("--model", metavar="FILE.py:CLASS", help="the model; otherwise you are asked")
    parser.add_argument("--data", metavar="FILE.py:CLASS", help="the data set, or none")
    parser.add_argument("--yes", action="store_true", help="write without asking; trust is never given without asking")


def run(arguments: argparse.Namespace) -> Initialized:
    """Show the files, write them if the user agrees, and ask whether they are trusted.

    Raises ConfigurationError, with what was found and drafted so far as its answer.
    """
    if not (folder := Path(arguments.folder).resolve()).is_dir():
        raise ConfigurationError(f"{arguments.folder} is not a folder. Name the folder of a repository.")
    repository = find(folder)
    scripts = [str(path.relative_to(folder)) for path in repository.scripts]
    answer = Initialized([*named(repository.models, folder)], [*named(repository.data_sets, folder)], scripts)
    try:
        drafted = draft(repository, script=arguments.script, model=arguments.model, data=arguments.data)
        _show(drafted, folder)
        files = {str(path): text for path, text in drafted.files.items()}
        texts = {path: text for path, text in files.items() if not path.endswith(SCHEMA)}
        answer = replace(answer, experiment=drafted.name, files=[*files], texts=texts, notes=[*drafted.notes])
        if not arguments.yes and not is_confirmed("\nWrite this?"):
            return answer
    except ConfigurationError as error:
        error.answer = answer
        raise
    _write(drafted)
    notes = [*drafted.notes, *_trust(folder, may_ask=not arguments.yes)]
    return replace(answer, is_written=True, notes=notes, commands=commands(drafted))


def _show(drafted: Draft, folder: Path) -> None:
    for path, text in drafted.files.items():
        print(f"\n{printable(path.relative_to(folder))}:")
        shown = ["the JSON Schema of experiments, for editors"] if path.name == SCHEMA else text.splitlines()
        print("".join(f"  {printable(line)}\n" for line in shown), end="")
    for note in drafted.notes:
        tell(f"\n{note}")


def _write(drafted: Draft) -> None:
    """Write the files. Raises ConfigurationError."""
    try:
        for path, text in drafted.files.items():
            make_folder(path.parent)
            write_whole(path, text)
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be written: {error.strerror}.") from None


def _trust(folder: Path, *, may_ask: bool) -> list[str]:
    """Show what is in the folder of configs, and ask whether the user trusts it. Return notes on what is left to do."""
    looks = look(folder)
    for line in screen(looks):
        tell(line)
    if may_ask and is_confirmed("Trust it as your own?"):
        for seen in looks:
            seen.trust()
        return []
    tell("Configs that you do not trust are not read. To trust them:")
    command = invocation.command("trust", folder)
    print(f"  {command}")
    return [f"The experiment is not read until you trust its folder: {command}"]
