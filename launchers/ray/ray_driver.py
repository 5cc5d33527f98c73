"""``python -m manyheads.launchers.ray.ray_driver``: holds a placement group, with an agent in each bundle."""

import json
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.machine.process import die_with_parent

POLL_SECONDS = 0.2
CONNECT_SECONDS = 40.0
AGAIN_SECONDS = 1.0  # before a command that has ended is restarted
TOO_SOON, TOO_OFTEN = 10.0, 3  # a command that fails this early, this many times in a row, will never run


def main() -> int:
    """Speak with the parent over standard input and output until it closes the input; returns the exit code."""
    die_with_parent()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for all that Ray prints
    asked = json.loads(sys.stdin.readline())

    def say(**words: Any) -> None:
        print(json.dumps(words), file=output, flush=True)

    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Under `uv run` Ray would send this process's working directory to the workers, and start them by uv there.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    import ray

    def refuse(why: str) -> None:
        say(failure=f"launcher=ray: no usable cluster at launcher.address={asked['address']}: {why}. {REMEDY}")
        os._exit(2)

    late = threading.Timer(CONNECT_SECONDS, refuse, [f"no answer within {CONNECT_SECONDS:g} seconds"])
    late.daemon = True
    late.start()
    try:
        address = cluster_address(asked["address"])
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises errors of every kind
        refuse(_first_line(error))
    late.cancel()
    try:
        say(address=ray.util.get_node_ip_address())
        if commands := json.loads(sys.stdin.readline() or "[]"):
            _hold(asked, commands, say)
    finally:
        ray.shutdown()
    return 0


REMEDY = (
    "Start one with `ray start --head`, or set launcher.address; its versions of Ray and Python must match this "
    "environment's."
)


def cluster_address(address: str) -> str:
    """Resolve launcher.address; ``auto`` means RAY_ADDRESS, or the cluster that ``ray start`` started on this machine.

    Ray itself would trust any user's file in /tmp, or process, and unpickle what that cluster sends. Raises
    ConnectionError if there is no cluster, or only another user's, and for ``local``, for which Ray would start a
    cluster whose folder in /tmp every user can write to.
    """
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named == "local":
        raise ConnectionError("local would start another cluster, for this run alone; launcher=torchrun needs none")
    if named not in ("", "auto"):
        return named
    temporary = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()  # noqa: TID251 - as Ray itself does
    path = Path(temporary, "ray", "ray_current_cluster")
    try:
        with open(path, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            status, content = os.fstat(file.fileno()), file.read(1000).strip()
    except (OSError, ValueError):
        content = ""
    if not content:
        raise ConnectionError("none was started here")
    if status.st_uid not in (os.getuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise ConnectionError(f"another user may have written {path}, so it is not followed")
    return content


def _knock(address: str) -> None:
    """Raises OSError if nothing listens at the address; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "//" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS / 4).close()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


def _hold(asked: dict[str, Any], commands: list[str], say: Any) -> None:
    import ray

    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    devices = {"CPU": asked["cpus"], "GPU": asked["gpus"]}
    resources = {name: count for name, count in devices.items() if count} or {"CPU": 0.001}
    group = ray.util.placement_group([resources] * asked["bundles"], strategy=asked["strategy"])
    bundles = [Bundle(group, number, resources, command) for number, command in enumerate(commands)]
    wanted = f"no room for {len(bundles)} x {resources}, placed as {asked['strategy']}"
    was_placed = None
    try:
        while not ended.wait(POLL_SECONDS):
            is_placed = ray.util.placement_group_table(group)["state"] == "CREATED"
            if is_placed != was_placed:
                say(is_placed=is_placed, wanted=f"{wanted}; free in the cluster: {_free()}")
                was_placed = is_placed
            for bundle in bundles if is_placed else ():
                bundle.keep()
                if bundle.failures >= TOO_OFTEN:
                    say(failure=f"the agent of bundle {bundle.number} exits at once; see logs/node_{bundle.number}.log")
                    return
    finally:
        for bundle in bundles:
            bundle.end()
        with suppress(Exception):
            ray.util.remove_placement_group(group)


def _free() -> str:
    import ray

    resources = ray.available_resources()
    return ", ".join(f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if name in resources) or "nothing"


def _wait_for_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


class Bundle:
    """One bundle of the group, with a command that is restarted when it ends or its machine is lost."""

    def __init__(self, group: Any, number: int, resources: dict[str, float], command: str):
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.number, self.failures = number, 0
        self._command = command
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        # A function of the standard library, since the cluster's workers could not import one of this project.
        self._call = ray.remote(subprocess.call).options(
            num_cpus=resources.get("CPU", 0),
            num_gpus=resources.get("GPU", 0),
            scheduling_strategy=strategy,
            max_retries=0,
            name="manyheads",
        )
        self._running: Any = None
        self._started = 0.0

    def keep(self) -> None:
        """Start the command if it is not running; counts the times that it failed soon after its start."""
        import ray

        now = time.monotonic()
        if self._running is not None:
            if not ray.wait([self._running], timeout=0)[0]:
                return
            try:
                code = ray.get(self._running)
            except Exception:  # its worker or its machine is gone
                code = 0
            soon = code != 0 and now - self._started < TOO_SOON
            self.failures, self._running = (self.failures + 1 if soon else 0), None
        if now - self._started > AGAIN_SECONDS:
            self._running = self._call.remote(["sh", "-c", self._command])
            self._started = now

    def end(self) -> None:
        """End the command, and the worker that runs it."""
        import ray

        if self._running is not None:
            with suppress(Exception):
                ray.cancel(self._running, force=True)


if __name__ == "__main__":
    sys.exit(main())
