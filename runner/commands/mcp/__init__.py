"""``manyheads mcp``: commands as tools of the Model Context Protocol, for agents."""

import argparse
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands import names
from manyheads.runner.commands.mcp.tool import CommandTool
from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.run.answer import Answer

HELP = "serve commands as tools of the Model Context Protocol, on stdin and stdout, for agents"
TOOLS = ("doctor", "train", "resume", "list", "show", "diff", "tried", "room", "judge", "reproduce")


@dataclass(frozen=True)
class ServedTools(Answer):
    """The tools that were served until the client closed stdin."""

    tools: list[str]
    calls: Annotated[int, "how many calls there were"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        help="the working directory of the commands; by default that in which the client starts this server",
    )


def run(arguments: argparse.Namespace) -> ServedTools:
    """Serve until stdin is closed. Raises ConfigurationError."""
    if find_spec("mcp") is None:
        raise Unavailable("the package mcp is not installed: pip install 'manyheads[mcp]'", key="mcp")
    if arguments.json:
        raise ConfigurationError(
            "--json: stdout is for the protocol, whose answers are JSON. Leave it out.", key="--json"
        )
    if not arguments.folder.is_dir():
        raise ConfigurationError.at("--folder", arguments.folder, " is not a folder. Name one that exists.")
    from manyheads.runner.commands.mcp.server import ToolServer

    if sys.stdin.isatty():
        print("stdin is for an MCP client, which starts this command itself. Ctrl-C ends it.", file=sys.stderr)
    tools = [CommandTool.of(name) for name in TOOLS if name in names()]
    return ServedTools([tool.name for tool in tools], ToolServer(tools, arguments.folder).serve())
