"""The server of the tools: what the protocol asks, answered by commands in processes of their own."""

import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from manyheads import __version__
from manyheads.runner.commands.mcp.command_call import CommandCall
from manyheads.runner.commands.mcp.tool import CommandTool
from manyheads.runner.machine.process import handled_by


class ToolServer:
    """Serves tools. ``folder``: the working directory of their commands."""

    def __init__(self, tools: Sequence[CommandTool], folder: Path):
        self._tools = {tool.name: tool for tool in tools}
        self._folder = folder
        self._calls: list[CommandCall] = []

    def serve(self) -> int:
        """Serve one client until it closes stdin, and stop its commands then; returns the number of calls."""
        with handled_by(self._end):
            anyio.run(self._serve)
        return len(self._calls)

    async def _serve(self) -> None:
        server = Server("manyheads", version=__version__, on_list_tools=self._list, on_call_tool=self._call)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    def _end(self, signum: int, _: FrameType | None) -> None:
        """Let a signal end this process, which stops its commands, unless they have been asked to stop.

        They would take the end of this process for a second signal, and end without a checkpoint.
        """
        if not any(call.is_stopping for call in self._calls):
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)

    async def _list(self, _: ServerRequestContext, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.about,
                    input_schema=tool.input_schema,
                    output_schema=tool.output_schema,
                )
                for tool in self._tools.values()
            ]
        )

    async def _call(self, context: ServerRequestContext, asked: types.CallToolRequestParams) -> types.CallToolResult:
        if (tool := self._tools.get(asked.name)) is None:
            return _result(f"{asked.name}: there is no such tool. Allowed: {', '.join(self._tools)}.", is_error=True)
        given = asked.arguments or {}
        if (mistake := best_match(Draft202012Validator(tool.input_schema).iter_errors(given))) is not None:
            name = ".".join(map(str, mistake.absolute_path))
            return _result(f"{name}: {mistake.message}" if name else mistake.message, is_error=True)
        call = CommandCall(tool.words(given), self._folder)
        self._calls.append(call)
        count = 0

        async def report(events: dict[str, str]) -> None:
            nonlocal count
            for line in events.values():
                count += 1
                await context.session.report_progress(count, message=line)

        end = await call.run(report)
        return _result(end.text, is_error=end.is_error, structured=end.reply)


def _result(text: str, *, is_error: bool, structured: Any = None) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=structured, is_error=is_error)
