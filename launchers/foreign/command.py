"""The command that the ranks of another launcher run: as typed, with these ranks, or one that resumes their run."""

from collections.abc import Mapping, Sequence

from manyheads.launchers.flags import chosen
from manyheads.launchers.foreign.world import World
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.own_folders import with_own_folders
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import declared
from manyheads.runner.option.tree import Section
from manyheads.runner.run.frozen import read_typed
from manyheads.runner.run.run_folder import RunFolder

# Commands that start ranks, or write what only one process may write.
ALONE = frozenset(
    (
        *("audit", "convert", "estimate", "evaluate", "explain", "export", "judge", "pack", "parity", "predict"),
        *("publish", "record", "report", "reproduce", "scale", "tune"),
    )
)
SWEEPS = {"-m", "--multirun"}


def completed(words: list[str], world: World, *, kept: str | None) -> list[str]:
    """The command that rank 0 runs: as typed, with the ranks that there are; or one that resumes the job's run.

    ``kept``: the run folder of an earlier attempt, which the launcher's store names. Raises ConfigurationError for what
    does not work with ranks that a launcher has started.
    """
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
    return _resumed(others, world, kept=kept, added=[f"{key}={value}" for key, value in added.items()])


def restarted(words: list[str], world: World) -> list[str]:
    """The command of a launcher's only rank: as typed, or one that resumes what an earlier start of it has begun."""
    if words[:1] != ["train"] or SWEEPS & {*words} or _only_prints(_line(words)):
        return words
    return _resumed(words, world)


def _line(words: Sequence[str]) -> CommandLine:
    typed = [word for word in words[1:] if word != "--json"]
    if (flag := chosen(typed)) is None:
        return with_own_folders(CommandLine(tuple(typed)))
    if not hasattr(flag, "line_of"):
        name = f"--{flag.__name__.rpartition('.')[2]}"
        raise ConfigurationError(
            f"{name} does not work in ranks that another program has started. Leave it out.", key=name
        )
    return with_own_folders(flag.line_of(typed))


def _only_prints(line: CommandLine) -> bool:
    flags = line.flags
    return bool(flags.cfg or flags.info or flags.help or flags.hydra_help)


def completing(words: Sequence[str], line: CommandLine, world: World) -> dict[str, object]:
    """The overrides that add its ranks to a command to train, and a strategy if none is chosen. ``line``: of ``words``.

    Raises ConfigurationError for a command that contradicts these ranks.
    """
    typed = typed_values(words)
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
    named = typed_values(words).get("hydra.run.dir")
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
    """Raises ConfigurationError for a run to resume whose ranks are not those that there are, or with changes."""
    section = recorded_launcher(words)
    if section.get("name", "foreign") != "foreign":
        raise _alone(words, world, f"launcher={section['name']} of this run starts its ranks itself")
    if (recorded := section.get("world_size", world.size)) != world.size:
        raise ConfigurationError.at(
            "launcher.world_size", recorded, f": {world.by} has started {world.size}. Start as many as the run had."
        )
    changes = [word for word in words[1:] if "=" in word and not word.startswith(("-", "trust="))]
    if section and changes:
        raise ConfigurationError(
            f"{changes[0]}: in ranks that {world.by} has started, resume continues a run without changes. To train it "
            f"longer in a new folder, type the run's first command with {' '.join(changes)} and "
            f"checkpoint.resume={RunFolder(str(_named(words))).last_checkpoint}",
            key=changes[0].partition("=")[0],
        )


def _alone(words: Sequence[str], world: World, why: str, otherwise: str = "") -> ConfigurationError:
    typed = invocation.command(words[0], *words[1:])
    message = f"{why}, and {world.by} has started {world.size} processes. To run it, {otherwise}type: {typed}"
    return ConfigurationError(message, key="launcher")


def typed_values(words: Sequence[str]) -> dict[str, str]:
    """The values of the overrides, by key; the last one counts."""
    overrides = (word.lstrip("+").partition("=") for word in words if "=" in word and not word.startswith("-"))
    return {key: value for key, _, value in overrides}


def _named(words: Sequence[str]) -> str | None:
    """The run that a command names; None without one."""
    return next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)


def recorded_launcher(words: Sequence[str]) -> Section:
    """The launcher's section of the run that is to be resumed; empty for other commands."""
    path = _named(words)
    if words[0] != "resume" or path is None or not (folder := RunFolder(path)).config.exists():
        return {}
    return folder.read_config().get("launcher", {})
