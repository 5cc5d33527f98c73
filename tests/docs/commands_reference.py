"""docs/commands.md, written from the parsers of all commands by ``python -m tests.docs.commands_reference``."""

import argparse
from collections.abc import Iterator

from manyheads.runner.app import Parser
from manyheads.runner.commands import module_of, names
from tests.conftest import ROOT

FILE = ROOT / "docs" / "commands.md"
GUIDES = {  # the page that explains a command, if it does not have the command's name
    **dict.fromkeys(("clean", "diff", "list", "show", "tried", "watch"), "runs"),
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
    **dict.fromkeys(("budget", "queue", "room", "work"), "desk"),
    "trust": "security",
}
HEAD = """# Commands

Each takes `--help`, `--json` and `--progress json` ([programs](programs.md)). Overrides are `group=option` and
`key=value`, as for `train`. This page is generated from the commands themselves.
"""


def reference() -> str:
    """The page, in Markdown."""
    index = [f"[`{name}`](#{name})" for name in names()]
    return "\n".join([HEAD, " · ".join(index), *(_section(name) for name in names())]) + "\n"


def _section(name: str) -> str:
    module = module_of(name)
    parser = Parser(prog=f"manyheads {name}", add_help=False)
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    rows = [f"| {typed} | {_cell(meaning)} |" for typed, meaning in _arguments(parser)]
    guide = GUIDES.get(name, name)
    parts = [f"\n## {name}\n", f"{module.HELP[0].upper()}{module.HELP[1:]}. [More]({guide}.md)"]
    return "\n".join([*parts, *(["", "| | |", "|---|---|", *rows] if rows else [])])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Each argument as it is typed, and what it means; required ones and lists are marked as in a usage line."""
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
        return "\\|".join(map(str, action.choices))
    shown = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    return shown if isinstance(shown, str) else " ".join(shown)


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    FILE.write_text(reference())
