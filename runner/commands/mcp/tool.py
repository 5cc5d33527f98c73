"""A command as a tool: the JSON Schemas of its arguments and of its answer, and the words that a call stands for."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from manyheads.runner.commands import module_of
from manyheads.runner.run.json_schema import DIALECT, Schema

TYPED = "arguments"  # the argument of a command that parses its command line itself
NUMBERS = {int: "integer", float: "number"}


class _Listed(argparse.ArgumentParser):
    """A parser that lists the arguments which a command adds; those that exclude each other, like all others."""

    def __init__(self) -> None:
        self.listed: list[argparse.Action] = []
        super().__init__(add_help=False)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument, and list it."""
        self.listed.append(super().add_argument(*names, **settings))
        return self.listed[-1]

    def add_mutually_exclusive_group(self, **_: Any) -> Any:
        """The parser itself."""
        return self


@dataclass(frozen=True)
class ToolArgument:
    """An argument of a command. ``flag``: as it is typed; empty for one that is typed without."""

    name: str
    flag: str
    schema: Schema
    is_required: bool

    @classmethod
    def of(cls, action: argparse.Action) -> "ToolArgument":
        """The argument that a parser knows as ``action``."""
        flag = action.option_strings[-1] if action.option_strings else ""
        name = flag.lstrip("-").replace("-", "_") or action.dest
        about = {"description": action.help.replace("%%", "%")} if action.help else {}
        return cls(name, flag, {**_type(action), **about}, action.required if flag else action.nargs not in ("*", "?"))

    def words(self, value: Any) -> list[str]:
        """The argument with this value as it is typed."""
        if isinstance(value, list):
            return [*([self.flag] if self.flag else []), *map(str, value)]
        if isinstance(value, bool):
            return [self.flag] * value
        return [f"{self.flag}={value}" if self.flag else str(value)]


def _type(action: argparse.Action) -> Schema:
    if action.nargs == 0:
        return {"type": "boolean"}
    if action.choices is not None:
        one: Schema = {"enum": [*action.choices]}
    else:
        one = {"type": NUMBERS.get(action.type, "string")}  # type: ignore[call-overload]  # any callable
    return {"type": "array", "items": one} if action.nargs in ("*", "+") else one


@dataclass(frozen=True)
class CommandTool:
    """A command as a tool. ``about``: what it is for."""

    name: str
    about: str
    arguments: tuple[ToolArgument, ...]

    @classmethod
    def of(cls, name: str) -> "CommandTool":
        """The tool that a command is."""
        module, parser = module_of(name), _Listed()
        if hasattr(module, "add_arguments"):
            module.add_arguments(parser)
        elif hasattr(module, "take"):
            parser.add_argument(TYPED, nargs="*", help="the words of its command line: overrides and flags")
        return cls(name, module.HELP, tuple(map(ToolArgument.of, parser.listed)))

    @property
    def input_schema(self) -> Schema:
        """The JSON Schema of the arguments of a call."""
        return {
            "$schema": DIALECT,
            "type": "object",
            "properties": {argument.name: argument.schema for argument in self.arguments},
            "required": [argument.name for argument in self.arguments if argument.is_required],
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> Schema:
        """The JSON Schema of what the command prints with --json."""
        return module_of("schema").schema_of_command(self.name)

    def words(self, given: Mapping[str, Any]) -> list[str]:
        """The command line of a call whose arguments fit the schema; flags come first."""
        named = [argument for argument in self.arguments if argument.name in given]
        flags_first = sorted(named, key=lambda argument: not argument.flag)
        return [self.name, *(word for argument in flags_first for word in argument.words(given[argument.name]))]
