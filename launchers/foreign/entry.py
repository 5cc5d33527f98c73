"""Runs a command in a process that a launcher has started as one rank of several.

Rank 0 runs the command; every other rank waits for its run and becomes a rank of that. Commands that start ranks
themselves are refused, and those that only read run as usual.
"""

import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from manyheads.launchers.agent_program import as_module
from manyheads.launchers.environment import environment
from manyheads.launchers.foreign import LEAD, variables_of
from manyheads.launchers.foreign.command import ALONE, completed, recorded_launcher, restarted, typed_values
from manyheads.launchers.foreign.conventions import TORCHRUN
from manyheads.launchers.foreign.meeting import Follower, Lead, Message, machine
from manyheads.launchers.foreign.stores import store_of
from manyheads.launchers.foreign.world import OURS, World, world_of
from manyheads.launchers.job import TRAIN
from manyheads.launchers.processes import existing
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import ConfigurationError, Ended, ExitCode, Interrupted, complain
from manyheads.runner.option.declared import declared
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import make_folder, write_whole
from manyheads.runner.run.frozen_config import CHECKED, run_config
from manyheads.runner.run.heartbeat import PLACE, Heartbeat
from manyheads.runner.run.run_folder import RunFolder

LAST_SECONDS = 3.0  # that rank 0 has to say why there is no run
LOCAL_RANK = re.compile(r"--local[-_]rank=\d+")  # which torch.distributed.launch adds to the command line
TRAIN_SEEN = "manyheads.launchers.foreign.follower"
Run = Callable[[list[str]], Any]


def enter(words: list[str], run: Run) -> Any:
    """Run the command, as ``run`` does, in its place among the ranks that this environment describes, if it does.

    Does not return for ranks above 0. Raises ConfigurationError for an environment that contradicts itself.
    """
    words = [word for word in words if not LOCAL_RANK.fullmatch(word)]
    name = next((word for word in words if not word.startswith("-")), "")
    world = world_of(os.environ) if name in ("train", "resume", *ALONE) else None
    if world is None or _is_met_by_itself(words, world):
        return run(words)
    if world.by == TORCHRUN.name and os.environ.get("OMP_NUM_THREADS") == "1":
        del os.environ["OMP_NUM_THREADS"]  # torchrun's default; what the user set is reported if it has no effect
    if world.size == 1:
        return run(restarted(words, world))
    typed = typed_values(words).get("launcher.start_timeout", "")
    seconds = float(typed if typed.isdecimal() else read_option("launcher", "foreign")["start_timeout"])
    if world.rank:
        _follow(world, words, seconds)
    return _lead(world, words, run, seconds)


def _is_met_by_itself(words: Sequence[str], world: World) -> bool:
    """Whether the launcher is meant to be started on every machine: with a rendezvous, or by Slurm's srun."""
    typed, recorded = typed_values(words), recorded_launcher(words)
    rendezvous = typed.get("launcher.rendezvous") or recorded.get("rendezvous")
    if rendezvous is not None and world.local_size == 1:
        return True
    name = typed.get("launcher") or recorded.get("name")
    is_known = world.by == "srun" and name in options("launcher")
    return is_known and bool(declared("launcher", read_option("launcher", str(name))).finds_machines)


def _lead(world: World, words: list[str], run: Run, seconds: float) -> Any:
    with store_of(world, seconds=seconds) as store:
        lead = Lead(world, words, store, seconds=seconds)
        token = LEAD.set(lead)
        code = int(ExitCode.FAILED)
        try:
            answer = run(completed(words, world, kept=lead.earlier_folder()))
            code = int(ExitCode.DONE)
            return answer
        except (Ended, ConfigurationError, Interrupted) as reason:
            code = int(reason.exit_code)
            raise
        except SystemExit as reason:
            code = reason.code if isinstance(reason.code, int) else int(reason.code is not None)
            raise
        finally:
            LEAD.reset(token)
            if not lead.is_done:
                lead.dismiss(code)


def _follow(world: World, words: Sequence[str], seconds: float) -> NoReturn:
    """Wait for rank 0's run and become a rank of it, or end with rank 0's exit code if there is none."""
    code = int(ExitCode.REFUSED)
    try:
        with store_of(world, seconds=seconds) as store:
            follower = Follower(world, words, store, seconds=seconds)
            order = follower.order()
            seen: Message = {} if "ends" in order else _seen(order)
            word = follower.confirm(order, **seen)
            code = int(word["code"])
        if "ends" not in word:
            _become(world, order, TRAIN_SEEN if seen.get("shares") else TRAIN)
        _outlast(word)
    except ConfigurationError as error:
        complain(str(error))
    sys.stdout.flush()
    os._exit(code)


def _outlast(word: Message) -> None:
    """Wait until rank 0 has ended, which has to say why: launchers end all ranks as soon as one has failed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + LAST_SECONDS
    while time.monotonic() < deadline and (word["machine"] != machine() or any(existing([word["parent"]]))):
        time.sleep(0.05)


def _seen(order: Message) -> Message:
    """Whether this machine ``shares`` rank 0's run folder; ``why``: the reason for which it cannot take part.

    A folder that it does not see is created here, for this machine's logs.
    """
    folder, content = RunFolder(order["folder"]), order["config"].encode()
    try:
        if (folder.logs / order["token"]).exists():
            return {"shares": True}
        if folder.config.exists() and read_bytes(folder.config) != content:
            return {"shares": False, "why": f"another run is in {folder.path}, where rank 0 has this one"}
        make_folder(folder.logs)
        write_whole(folder.config, content)
    except OSError as error:
        return {"shares": False, "why": f"{folder.path} can't be written: {error.strerror}"}
    return {"shares": False}


def _become(world: World, order: Message, main: str) -> NoReturn:
    """Replace this process by the rank, which finds the environment that launcher=torchrun gives it.

    ``main``: the module whose main(folder) is the rank.
    """
    folder, content = RunFolder(order["folder"]), order["config"].encode()
    run = RunConfig.of(run_config(content, folder.config))
    launcher = run.launcher.kind(name=run.launcher.name, **run.launcher.arguments())
    variables = {**os.environ, **environment(launcher), **order["variables"], **variables_of(world, order)}
    variables[CHECKED] = f"{hashlib.sha256(content).hexdigest()} {folder.path}"
    if order["machine"] == machine():
        variables[OURS] = str(order["parent"])
    else:
        del variables[OURS]
        variables[PLACE] = _own_heartbeat(world)
    os.execve(sys.executable, [sys.executable, *as_module(main), str(folder.path)], variables)


def _own_heartbeat(world: World) -> str:
    """Create this rank's heartbeat on a machine that does not share rank 0's; returns the value of PLACE."""
    folder = scratch.of_process()
    Heartbeat.create(folder / f"rank-{world.rank - world.local_rank}" / "heartbeat", ranks=world.size)
    os.set_inheritable(scratch.kept(folder), True)  # the folder lasts as long as this process
    return str(folder / "rank-")
