"""The server, as the protocol's own client sees it: real runs, cancelled calls, and what is left when it dies."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
import torch

from manyheads.runner.run.run_folder import RunFolder
from tests.needs import missing

if missing("mcp") is None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

pytestmark = [pytest.mark.needs("mcp"), pytest.mark.processes, pytest.mark.ci]
SMALL = ["model=mlp", "trainer.device=cpu", "launcher.nproc_per_node=1", "launcher.threads_per_rank=1"]
LONG = [*SMALL, "parallel=ddp", "trainer.epochs=1000", "trainer.log_every=1", "hydra.run.dir=outputs/long"]
SECONDS = 100


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator["ClientSession"]:
    arguments = ["-m", "manyheads", "mcp", "--folder", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ})
    with open(folder / "stderr", "w") as errors:
        async with stdio_client(server, errlog=errors) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a client to its end."""

    async def limited() -> None:
        with anyio.fail_after(SECONDS):
            await main()

    anyio.run(limited)


def test_tools_are_listed_and_called(tmp_path):
    events: list[dict[str, Any]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        events.append({"number": progress, **json.loads(message or "")})

    async def client() -> None:
        async with connected(tmp_path) as session:
            tools = (await session.list_tools()).tools
            assert len(tools) <= 10
            assert {"train", "resume", "list", "judge"} <= {tool.name for tool in tools}
            line = [*SMALL, "trainer.epochs=2", "hydra.run.dir=outputs/first"]
            done = await session.call_tool("train", {"arguments": line}, progress_callback=note)
            assert not done.is_error
            assert done.structured_content["result"]["status"] == "completed"
            assert done.structured_content == json.loads(done.content[0].text)
            listed = await session.call_tool("list", {})
            assert [row["folder"] for row in listed.structured_content["result"]["runs"]] == ["outputs/first"]
            none = await session.call_tool("tried", {"overrides": ["trainer.epochs=7"]})
            assert (none.is_error, none.structured_content["exit_code"]) == (False, 3)

    run(client)
    assert [event["number"] for event in events] == sorted({event["number"] for event in events})
    assert {"started", "evaluated", "ended"} <= {event["event"] for event in events}


def test_errors_are_those_of_the_command(tmp_path):
    async def client() -> None:
        async with connected(tmp_path) as session:
            refused = await session.call_tool("train", {"arguments": ["trainer.tta=flop"]})
            assert refused.is_error
            assert refused.content[0].text.startswith('trainer.tta="flop" is not allowed.')
            assert refused.structured_content["error"]["key"] == "trainer.tta"
            for name, given, message in (
                ("list", {"sorted": "val_acc1"}, "'sorted' was unexpected"),
                ("list", {"overrides": "model=mlp"}, "overrides: 'model=mlp' is not of type 'array'"),
                ("show", {}, "'run_folder' is a required property"),
                ("trust", {}, "trust: there is no such tool. Allowed: doctor,"),
            ):
                mistaken = await session.call_tool(name, given)
                assert mistaken.is_error
                assert message in mistaken.content[0].text

    run(client)


async def begin(session: "ClientSession", folder: RunFolder, tasks: Any) -> anyio.CancelScope:
    """Let a client call for a long run, and return when it trains; returns what cancels the call."""
    scope = anyio.CancelScope()

    async def call() -> None:
        with scope:
            await session.call_tool("train", {"arguments": LONG})

    tasks.start_soon(call)
    while not trains(folder):
        await anyio.sleep(0.05)
    return scope


def trains(folder: RunFolder) -> bool:
    """Whether a run has completed updates, which a checkpoint would keep."""
    return folder.steps.exists() and len(folder.steps.read_text().splitlines()) > 3


def stopped_with_a_checkpoint(folder: RunFolder) -> None:
    """Check how a run has ended, once it and its processes have."""
    deadline = time.monotonic() + SECONDS
    while folder.read_result() is None or processes(folder):
        assert time.monotonic() < deadline, (folder.read_result(), processes(folder))
        time.sleep(0.05)
    result = folder.read_result()
    assert (result["status"], result["signal"]) == ("interrupted", signal.SIGTERM)
    checkpoint = torch.load(folder.last_checkpoint, weights_only=True)
    assert checkpoint["progress"]["step"] == result["steps"] > 0


def processes(folder: RunFolder) -> list[psutil.Process]:
    """All that work in the folder in which the run's command was started."""
    start = str(folder.path.parent.parent)
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == start]


def test_a_cancelled_call_stops_with_a_checkpoint(tmp_path):
    folder = RunFolder(tmp_path / "outputs" / "long")

    async def client() -> None:
        async with connected(tmp_path) as session:
            async with anyio.create_task_group() as tasks:
                (await begin(session, folder, tasks)).cancel()
            while folder.read_result() is None:
                await anyio.sleep(0.05)
            shown = await session.call_tool("show", {"run_folder": "outputs/long"})  # it serves on
            assert shown.structured_content["result"]["status"] == "interrupted"

    run(client)
    stopped_with_a_checkpoint(folder)


def test_when_it_is_killed_its_commands_stop(tmp_path):
    folder = RunFolder(tmp_path / "outputs" / "long")

    async def client() -> None:
        async with connected(tmp_path) as session, anyio.create_task_group() as tasks:
            scope = await begin(session, folder, tasks)
            server = next(child for child in psutil.Process().children() if "mcp" in child.cmdline())
            server.kill()
            scope.cancel()

    run(client)
    stopped_with_a_checkpoint(folder)


def test_it_ends_with_its_client(tmp_path):
    folder = RunFolder(tmp_path / "outputs" / "long")
    information = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": information},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "train", "arguments": {"arguments": LONG}}},
    ]
    command = [sys.executable, "-m", "manyheads", "mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as server:
        assert server.stdin is not None
        for message in messages:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()
        while not trains(folder):
            time.sleep(0.05)
        server.stdin.close()
        assert server.wait(SECONDS) == 0
    assert folder.read_result() is not None  # it has waited for the run's end
    stopped_with_a_checkpoint(folder)


def test_a_signal_is_not_passed_on_twice(tmp_path):
    """The commands would take the server's death for a second signal, after which they write no checkpoint."""
    from manyheads.runner.commands.mcp.command_call import CommandCall
    from manyheads.runner.commands.mcp.server import ToolServer

    server = ToolServer([], tmp_path)
    server._calls.append(CommandCall([], tmp_path, is_stopping=True))
    server._end(signal.SIGTERM, None)  # would end this process
