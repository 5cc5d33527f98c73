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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from manyheads.launchers.agent_program import as_module
from manyheads.launchers.environment import environment
from manyheads.launchers.foreign import LEAD, variables_of
from manyheads.launchers.foreign.conventions import OURS, World, world_of
from manyheads.launchers.foreign.meeting import Follower, Lead, Message, machine
from manyheads.launchers.foreign.stores import store_of
from manyheads.launchers.launcher import TRAIN
from manyheads.launchers.processes import existing
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.own_folders import with_own_folders
from manyheads.runner.errors import ConfigurationError, Ended, ExitCode, Interrupted, complain
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import declared
from manyheads.runner.option.locate import Section
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import make_folder, write_whole
from manyheads.runner.run.frozen import read_typed
from manyheads.runner.run.heartbeat import PLACE, Heartbeat
from manyheads.runner.run.run_folder import CHECKED, RunFolder, run_config

# Commands that start ranks, or write what only one process may write.
ALONE = frozenset(
    (
        *("audit", "convert", "estimate", "evaluate", "explain", "export", "judge", "pack", "parity", "predict"),
        *("publish", "record", "report", "reproduce", "scale", "tune"),
    )
)
LAST_SECONDS = 3.0  # that rank 0 has to say why there is no run
LOCAL_RANK = re.compile(r"--local[-_]rank=\d+")  # which torch.distributed.launch adds to the command line
SWEEPS = {"-m", "--multirun"}
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
    if world.size == 1:
        return run(_restarted(words, world))
    typed = _typed(words).get("launcher.start_timeout", "")
    seconds = float(typed if typed.isdecimal() else read_option("launcher", "foreign")["start_timeout"])
    if world.rank:
        _follow(world, words, seconds)
    return _lead(world, words, run, seconds)


def _is_met_by_itself(words: Sequence[str], world: World) -> bool:
    """Whether the launcher is meant to be started on every machine: with a rendezvous, or by Slurm's srun."""
    typed, recorded = _typed(words), _recorded(words)
    rendezvous = typed.get("launcher.rendezvous") or recorded.get("rendezvous")
    if rendezvous is not None and world.local_size == 1:
        return True
    name = typed.get("launcher") or recorded.get("name")
    is_known = world.by == "srun" and name in options("launcher")
    return is_known and bool(declared("launcher", read_option("launcher", str(name))).finds_machines)


def _recorded(words: Sequence[str]) -> Section:
    """The launcher's section of the run that is to be resumed; empty for other commands."""
    path = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
    if words[0] != "resume" or path is None or not (folder := RunFolder(path)).config.exists():
        return {}
    section: Section = folder.read_config().get("launcher", {})
    return section


def _lead(world: World, words: list[str], run: Run, seconds: float) -> Any:
    with store_of(world, seconds=seconds) as store:
        lead = Lead(world, words, store, seconds=seconds)
        token = LEAD.set(lead)
        code = int(ExitCode.FAILED)
        try:
            answer = run(_completed(words, lead))
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


def _completed(words: list[str], lead: Lead) -> list[str]:
    """The command that rank 0 runs: as typed, with the ranks that there are; or one that resumes the job's run.

    Raises ConfigurationError for what does not work with ranks that a launcher has started.
    """
    world = lead.world
    if words[:1] != ["train"]:
        if words[0] in ALONE:
            raise _alone(words, world, f"{words[0]} starts its processes itself")
        _check_recorded(words, world)
        return words
    if SWEEPS & {*words}:
        raise _alone(words, world, "a sweep starts the ranks of its jobs itself")
    line = _line(words)
    added = completing(words, line, world)
    if _only_prints(line):
        return words
    others = [word for word in words if word.partition("=")[0] not in added]
    kept = lead.earlier_folder()
    return _resumed(others, world, kept=kept, added=[f"{key}={value}" for key, value in added.items()])


def _restarted(words: list[str], world: World) -> list[str]:
    """The command of a launcher's only rank: as typed, or one that resumes what an earlier start of it has begun."""
    if words[:1] != ["train"] or SWEEPS & {*words} or _only_prints(_line(words)):
        return words
    return _resumed(words, world)


def _line(words: Sequence[str]) -> CommandLine:
    return with_own_folders(CommandLine(tuple(word for word in words[1:] if word != "--json")))


def _only_prints(line: CommandLine) -> bool:
    flags = line.flags
    return bool(flags.cfg or flags.info or flags.help or flags.hydra_help)


def completing(words: Sequence[str], line: CommandLine, world: World) -> dict[str, object]:
    """The overrides that add its ranks to a command to train, and a strategy if none is chosen. ``line``: of ``words``.

    Raises ConfigurationError for a command that contradicts these ranks.
    """
    typed = _typed(words)
    if typed.get("launcher", "foreign") != "foreign":
        raise _alone(words, world, f"launcher={typed['launcher']} starts its ranks itself", "leave out launcher=, or ")
    for key, number in {"nproc_per_node": world.local_size, "world_size": world.size}.items():
        if (given := typed.get(f"launcher.{key}", "auto")) not in ("auto", str(number)):
            raise ConfigurationError.at(
                f"launcher.{key}", given, f": {world.by} has started {number}. Leave it out.", allowed=[number]
            )
    name = typed.get("parallel", "")
    if name in options("parallel") and declared("parallel", read_option("parallel", name)).one_process:
        raise _alone(words, world, f"parallel={name} runs in one process", "set parallel=ddp, or ")
    return {
        "launcher": "foreign",
        "launcher.nproc_per_node": world.local_size,
        "launcher.world_size": world.size,
        "launcher.started_by": f"'{world.by}'",
        **({} if _chooses_strategy(line, typed) else {"parallel": "ddp"}),
    }


def _chooses_strategy(line: CommandLine, typed: Mapping[str, str]) -> bool:
    """Whether the command line chooses a strategy, or an experiment or a config that may do so."""
    if "parallel" in typed or line.flags.config_name or line.flags.config_path:
        return True
    named = typed.get("experiment", f"{typed.get('data', 'digits')}_quick")
    files = [folder / "experiment" / f"{named}.yaml" for folder in line.folders]
    return any("/parallel:" in file.read_text() for file in files if file.is_file())


def _resumed(words: list[str], world: World, *, kept: str | None = None, added: Sequence[str] = ()) -> list[str]:
    """The command to train, or to resume what an earlier start of this job has begun in the same folder.

    ``kept``: the folder that the launcher's store names; ``added``: overrides. Raises ConfigurationError if the folder
    holds a run of another command.
    """
    named = _typed(words).get("hydra.run.dir")
    usual = None if world.name is None else f"outputs/{world.name}"
    folder = RunFolder(kept or named or usual or "")
    if not (kept or named or usual) or not folder.config.exists():
        return [*words, *added, *([f"hydra.run.dir={usual}"] if usual and named is None and kept is None else [])]
    before = {override for override in read_typed(folder.composed.with_name("overrides.yaml")) if override not in added}
    now = {word for word in words[1:] if "=" in word and not word.startswith(("hydra.", "trust=", "-"))}
    if before != now:
        raise ConfigurationError(
            f"{folder} already holds a run of another command line: {' '.join(sorted(before ^ now))}. Name another "
            "folder: hydra.run.dir.",
            key="hydra.run.dir",
        )
    return ["resume", str(folder), *(word for word in words if word.startswith(("trust=", "--json")))]


def _check_recorded(words: Sequence[str], world: World) -> None:
    """Raises ConfigurationError for a run to resume whose ranks are not those that there are."""
    section = _recorded(words)
    if section.get("name", "foreign") != "foreign":
        raise _alone(words, world, f"launcher={section['name']} of this run starts its ranks itself")
    if (recorded := section.get("world_size", world.size)) != world.size:
        raise ConfigurationError.at(
            "launcher.world_size", recorded, f": {world.by} has started {world.size}. Start as many as the run had."
        )


def _alone(words: Sequence[str], world: World, why: str, otherwise: str = "") -> ConfigurationError:
    typed = invocation.command(words[0], *words[1:])
    message = f"{why}, and {world.by} has started {world.size} processes. To run it, {otherwise}type: {typed}"
    return ConfigurationError(message, key="launcher")


def _typed(words: Sequence[str]) -> dict[str, str]:
    """The values of the overrides, by key; the last one counts."""
    overrides = (word.lstrip("+").partition("=") for word in words if "=" in word and not word.startswith("-"))
    return {key: value for key, _, value in overrides}


def _follow(world: World, words: list[str], seconds: float) -> NoReturn:
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
