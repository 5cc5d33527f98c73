"""``manyheads schema``: the JSON Schema of a command's answer, or of a config."""

import argparse
import json
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from manyheads.runner.commands import module_of, names
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.config_schema import KINDS, schema_for
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.compared_runs import ComparedRuns
from manyheads.runner.records.run_result import Result
from manyheads.runner.run.answer import Answer, Reply
from manyheads.runner.run.json_schema import Schema, schema_of

HELP = "print the JSON Schema of a command's answer, of run.yaml, or of an option, for editors and programs"


@dataclass(frozen=True)
class JsonSchema(Answer):
    """A JSON Schema."""

    schema: Annotated[Schema, "the document, of draft 2020-12"]

    def show(self) -> None:
        print(json.dumps(self.schema, indent=2, ensure_ascii=False))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "what",
        help="a command, for what it prints with --json; config, for run.yaml; experiment, for files that set keys; a "
        "group or an option, such as parallel=fsdp",
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")


def run(arguments: argparse.Namespace) -> JsonSchema:
    """The schema. Raises ConfigurationError."""
    if arguments.what in names():
        return JsonSchema(schema_of_command(arguments.what))
    if arguments.what.partition("=")[0] not in KINDS:
        allowed = [*names(), *KINDS, "group=option"]
        raise ConfigurationError(
            f"{arguments.what} has no schema. Allowed: {', '.join(allowed)}.",
            key="schema",
            value=arguments.what,
            allowed=allowed,
        )
    line, _ = resolve_origin(CommandLine.of((), arguments.config_dir))
    return JsonSchema(schema_for(arguments.what, line.folders))


def schema_of_command(name: str) -> Schema:
    """The schema of what a command prints with --json."""
    return {**schema_of(Reply, result=answer_of_command(name) | None), "title": f"manyheads {name} --json"}


def answer_of_command(name: str) -> Any:
    """The class of a command's answer, or a union of several."""
    module, later = module_of(name), {"Result": Result, "ComparedRuns": ComparedRuns}  # imported on demand
    return get_type_hints(getattr(module, "take", None) or module.run, localns=later)["return"]
