"""``python -m runner doctor``: what this machine can run, and what is missing for the rest."""

import argparse
import platform
from collections.abc import Sequence
from importlib import metadata

from rich.console import Console
from rich.table import Table

from manyheads.launchers.nodes.examine_hosts import examine as machines_examined
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.installed import package_of
from manyheads.runner.config.lookup import OWN, Folders, options, own_sections, read_option, unavailable
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware, invocation, memory, software
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared
from manyheads.runner.option.locate import OPTION, TARGET
from manyheads.runner.trust.check_trust import complaint, untrusted
from manyheads.runner.trust.trust_store import Trust, split_typed, trusted_packages
from manyheads.runner.wording import nearest

NONE = Trust()
HELP = "show which options run on this machine, and how to get the others"
# Groups with options that need something of the machine; of the others, those of the user's own are listed.
LISTED = ("parallel", "precision", "launcher", "optimizer", "logger")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    about = (
        "an option (apex or parallel=apex) or a group, for details; trust=[my_package]: run the checks of its "
        "options too"
    )
    parser.add_argument("names", nargs="*", help=about)
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument(
        "--hosts", help="node1,node2: check whether these machines can run together, and how fast they communicate"
    )
    parser.add_argument("--remote-shell", help="as launcher.remote_shell, for --hosts")
    parser.add_argument("--network-interface", help="as launcher.network_interface, for --hosts")
    parser.add_argument("--models", action="store_true", help="list every name that model=torchvision takes")


def run(arguments: argparse.Namespace) -> int:
    """Print the tables, what is known of some options or of machines, or the names of models; returns the exit code."""
    if arguments.models:
        list_models()
        return 0
    if arguments.hosts:
        return examine_hosts(arguments)
    typed, asked = split_typed(arguments.names)
    line, origin = resolve_origin(CommandLine.of(set(arguments.names) - set(asked), arguments.config_dir))
    trusted = Trust(trusted_packages(typed))
    if asked:
        explain(asked, line.folders, origin.trust, trusted)
    else:
        examine(line.folders, origin.trust, trusted)
    return 0


def examine_hosts(arguments: argparse.Namespace) -> int:
    """Print what is found of several machines; returns 1 where they can't run together."""
    console, said = Console(highlight=False, markup=False), list[str]()
    hosts = [name.strip() for name in arguments.hosts.split(",") if name.strip()]
    options = {"shell": arguments.remote_shell, "interface": arguments.network_interface}
    found = machines_examined(hosts, say=said.append, **options)
    lines = [f"{each.name}: {', '.join(f'{key} {value}' for key, value in each.told.items())}" for each in found]
    faults = [f"error: {each.name}: {fault}." for each in found for fault in each.faults]
    for line in [*lines, *faults, *said]:
        console.print(line, soft_wrap=True)
    return int(any(each.faults for each in found) or any("failed" in line for line in said))


def examine(folders: Folders = OWN, trust: Trust | None = None, trusted: Trust = NONE) -> None:
    """Print the machine, then of each group what it can run and what not.

    folders: where options are looked up; trust: what the user trusts of them, None if all of them are the user's own;
    trusted: the installed packages whose options may be imported without being chosen.
    """
    console = Console(highlight=False)
    machine = Table(title="This machine", title_justify="left", show_header=False)
    for name, text in describe_machine().items():
        machine.add_row(name, text)
    console.print(machine)
    table = Table(title="What it can run", title_justify="left")
    for title in ("", "runs here", "not here"):
        table.add_column(title)
    missing = []
    unasked: dict[str, list[str]] = {}
    for group, names in options_by_group(folders).items():
        for name in names:
            if (package := not_imported(group, name, trusted)) is not None:
                unasked.setdefault(package, []).append(f"{group}={name}")
        names = [name for name in names if not_imported(group, name, trusted) is None]
        reasons = {name: why_not(group, name, folders, trust) for name in names}
        missing += [f"{group}={name}" for name, reason in reasons.items() if reason]
        here, not_here = ([name for name in names if bool(reasons[name]) is absent] for absent in (False, True))
        table.add_row(group, ", ".join(here), ", ".join(not_here))
    console.print(table)
    for package, found in unasked.items():
        console.print(f"Installed with {package}, and not imported until you choose it: {', '.join(found)}")
    if missing:
        console.print(f"Why, and how to get it: {invocation.command('doctor', missing[0])}", soft_wrap=True)


def explain(asked: Sequence[str], folders: Folders = OWN, trust: Trust | None = None, trusted: Trust = NONE) -> None:
    """Print details of options: whether they run here and how, or why not and how to get them.

    asked: ``option``, ``group=option`` or ``group``. Raises ConfigurationError for anything else.
    """
    known = [(group, name) for group in sorted((*GROUPS, *ENTRIES)) for name in options(group, folders)]
    console = Console(highlight=False, markup=False)
    told: dict[str, str] = {}  # by reason, the first option that it was given for
    for words in asked:
        found = [(group, name) for group, name in known if words in (group, name, f"{group}={name}")]
        if not found:
            names = [words for group, name in known for words in (name, f"{group}={name}")]
            allowed = "Allowed: a group, an option, group=option, or nothing for a table of all"
            raise ConfigurationError(f"{words} is not an option.{nearest(words, dict.fromkeys(names))} {allowed}.")
        for group, name in found:
            option = f"{group}={name}"
            if words == group and (package := not_imported(group, name, trusted)) is not None:
                console.print(f"{option} is installed with {package}, and not imported until you choose it.")
                continue
            reason = why_not(group, name, folders, trust)
            if reason:
                why = f"as {told[reason]}" if reason in told else reason
                console.print(f"{option} does not run here: {why}.", soft_wrap=True)
                told.setdefault(reason, option)
            else:
                text = note(group, name, folders)
                console.print(f"{option} runs here{f': {text}' if text else ''}.", soft_wrap=True)


def options_by_group(folders: Folders) -> dict[str, list[str]]:
    """The options of the table by group: of some groups all, of the others the user's own."""
    groups = sorted((*GROUPS, *ENTRIES), key=lambda group: (*LISTED, group).index(group))
    found = {
        group: sorted({*options(group, folders)} - {*(() if group in LISTED else options(group))}) for group in groups
    }
    return {group: names for group, names in found.items() if names}


def why_not(group: str, option: str, folders: Folders = OWN, trust: Trust | None = None) -> str | None:
    """Why an option cannot run here, or may not be asked; None for one that runs."""
    return _untrusted(group, option, folders, trust) or unavailable(group, option, folders)


def not_imported(group: str, option: str, trusted: Trust) -> str | None:
    """The installed package that brings an option, unless it is trusted: nothing of it may be imported."""
    package = package_of(group, option)
    if package is None:
        return None
    content = read_option(group, option, (package.folder,))
    sections = [content] if group in GROUPS else content.values()
    names = {name for section in sections for key in (TARGET, OPTION) if (name := section.get(key)) is not None}
    return None if all(map(trusted.covers, names)) else package.name


def describe_machine() -> dict[str, str]:
    """What the doctor's first table says, by name."""
    gpus = hardware.gpu_names()
    cuda = hardware.torch_cuda_version()
    if gpus:
        devices = ", ".join(gpus)
    elif why := hardware.unused_gpus():
        devices = f"none usable by torch: {why}"
    else:
        devices = "none: there is no NVIDIA driver"
    return {
        "python": platform.python_version(),
        "torch": f"{_version('torch')}, built for {f'CUDA {cuda}' if cuda else 'CPU'}",
        "torchvision": _version("torchvision"),
        **_installed(),
        "GPUs": devices,
        "CPU": f"{hardware.cpu_model()}, {hardware.cpu_cores()} cores",
        "torch.compile": software.description(),
        "shared memory": memory.size() or "unknown",
    }


def _untrusted(group: str, option: str, folders: Folders, trust: Trust | None) -> str | None:
    """Why an option of somebody's cannot be asked; None for one that can."""
    found = [] if trust is None else untrusted({group: read_option(group, option, folders)}, trust)
    return complaint(found).rstrip(".") if found else None


def note(group: str, option: str, folders: Folders = OWN) -> str:
    """What a runnable option comes to on this machine."""
    return "" if group in ENTRIES else declared(group, read_option(group, option, folders)).note()


def list_models() -> None:
    """Print every name that model=torchvision takes."""
    from manyheads.runner.model.rank.torchvision import names, segmentation_names

    print("\n".join([*names(), *segmentation_names()]))


def _installed() -> dict[str, str]:
    """The libraries that this project's strategies are built on, by name."""
    known = (declared("parallel", section).installed() for section in own_sections("parallel"))
    return {name: text for libraries in known for name, text in libraries.items()}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
