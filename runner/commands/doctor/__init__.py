"""``python -m runner doctor``: what this machine can run, and what is missing for the rest."""

import argparse

from manyheads.launchers.wrappers import several_machines
from manyheads.runner.commands.doctor.answer import (
    ExaminedHost,
    ExaminedHosts,
    ExaminedMachine,
    ExplainedOptions,
    ModelNames,
)
from manyheads.runner.commands.doctor.examine import examine, explain
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.run.progress import working

HELP = "show which options run on this machine, and how to get the others"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "names",
        nargs="*",
        help="an option (apex or parallel=apex) or a group, for details; trust=[my_package]: run the checks of its "
        "options too",
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument(
        "--hosts", help="node1,node2: check whether these machines can run together, and how fast they communicate"
    )
    parser.add_argument("--remote-shell", help="as launcher.remote_shell, for --hosts")
    parser.add_argument("--network-interface", help="as launcher.network_interface, for --hosts")
    parser.add_argument("--models", action="store_true", help="list every name that model=torchvision takes")


def run(arguments: argparse.Namespace) -> ExaminedMachine | ExplainedOptions | ExaminedHosts | ModelNames:
    """Examine the machine, some options or several machines, or list models. Raises ConfigurationError."""
    if arguments.models:
        return model_names()
    if arguments.hosts:
        return examine_hosts(arguments)
    asked = split_typed(arguments.names)[1]
    line, origin = resolve_origin(CommandLine.of(set(arguments.names) - set(asked), arguments.config_dir))
    return explain(asked, line.folders, origin) if asked else examine(line.folders, origin)


def examine_hosts(arguments: argparse.Namespace) -> ExaminedHosts:
    """Examine several machines. Raises ConfigurationError."""
    together = list[str]()
    hosts = [name.strip() for name in arguments.hosts.split(",") if name.strip()]
    options = {"shell": arguments.remote_shell, "interface": arguments.network_interface}
    with working(f"examining {', '.join(hosts)}"):
        examined = several_machines().examine(hosts, say=together.append, **options)
    failed = any(host.faults for host in examined) or any("failed" in line for line in together)
    return ExaminedHosts([ExaminedHost(*host) for host in examined], together, can_run=not failed)


def model_names() -> ModelNames:
    """Every name that model=torchvision takes."""
    from manyheads.runner.model.rank.torchvision import names, segmentation_names

    return ModelNames([*names(), *segmentation_names()])
