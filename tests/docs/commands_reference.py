"""A page with the arguments of every command, generated from their parsers."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from manyheads.runner.app import Parser
from manyheads.runner.commands import module_of, names

GUIDES = {  # the page that explains a command, if it does not have the command's name
    **dict.fromkeys(("clean", "diff", "list", "show", "watch"), "runs"),
    **dict.fromkeys(("evaluate", "export", "predict"), "using-a-trained-model"),
    **dict.fromkeys(("index", "pack"), "shards"),
    **dict.fromkeys(("init", "new"), "your-project"),
    **dict.fromkeys(("mcp", "schema", "skill"), "programs"),
    "train": "options",
    "convert": "checkpoints",
    "doctor": "install",
    "install-horovod": "horovod",
    "manifest": "manifests",
    "publish": "trackers",
    "record": "records",
    "report": "comparing",
    **dict.fromkeys(("budget", "room"), "desk"),
    "tried": "once",
    "trust": "security",
    "work": "queue",
}
HEAD = """# Commands

The arguments of each command of `manyheads`, whose heading links to its guide; those in brackets may be omitted. Each
command takes `--help`, `--json` and `--progress json` ([programs](programs.md)). Several take:
"""
TABLE = "|argument|meaning|\n|-|-|"

Argument = tuple[str, str]  # as it is typed, and what it means


def reference() -> str:
    """The page, in Markdown."""
    arguments = {name: [*_arguments(name)] for name in names()}
    count = Counter(argument for of_one in arguments.values() for argument in of_one)
    shared: dict[str, str] = {}
    for (typed, meaning), number in count.most_common():
        if number > 1:
            shared.setdefault(typed, meaning)
    sections = (_section(name, of_one, shared) for name, of_one in arguments.items())
    return "\n".join([HEAD, _table(shared.items()), *sections]) + "\n"


def _section(name: str, arguments: Sequence[Argument], shared: Mapping[str, str]) -> str:
    """A command: what it is for, which of the ``shared`` arguments it takes, and a table of its own."""
    common = [typed for typed, meaning in arguments if shared.get(typed) == meaning]
    own = [(typed, meaning) for typed, meaning in arguments if shared.get(typed) != meaning]
    purpose = module_of(name).HELP
    lines = [f"\n## [{name}]({GUIDES.get(name, name)}.md)\n", f"{purpose[0].upper()}{purpose[1:]}."]
    if common:
        lines[-1] += f" Takes {', '.join(common)}."
    return "\n".join([*lines, *(["", _table(own)] if own else [])])


def _table(arguments: Iterable[Argument]) -> str:
    return "\n".join([TABLE, *(f"|{_cell(typed)}|{_cell(meaning)}|" for typed, meaning in arguments)])


def _arguments(name: str) -> Iterator[Argument]:
    """Each argument of a command; required flags and lists are marked as in a usage line."""
    module = module_of(name)
    parser = Parser(prog=f"manyheads {name}", add_help=False)
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    for action in parser._actions:
        value = "" if action.nargs == 0 else _value(action)
        if action.option_strings:
            typed = f"{action.option_strings[-1]} {value}".strip()
            yield (f"`{typed}`" + (" (required)" if action.required else "")), action.help or ""
        else:
            several = {"*": "[{} ...]", "+": "{} ...", "?": "[{}]"}.get(str(action.nargs), "{}")
            yield f"`{several.format(value)}`", action.help or ""


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    shown = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    return shown if isinstance(shown, str) else " ".join(shown)


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
