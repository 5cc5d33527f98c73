"""``python -m runner doctor``: what this machine can run, and what is missing for the rest."""

import argparse
import platform
from importlib import metadata

from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyheads.runner.config.arguments import CommandLine
from manyheads.runner.config.complete import unavailable
from manyheads.runner.config.lookup import OWN, Folders, options, read_option
from manyheads.runner.config.origin import settle
from manyheads.runner.machine import apex as apex_installation
from manyheads.runner.machine import hardware
from manyheads.runner.option.declared import GROUPS, declared
from manyheads.runner.parallel.horovod import installation as horovod_installation
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.trust.check import complaint, untrusted
from manyheads.runner.trust.own import Trust

HELP = "show which options run on this machine, and how to get the others"
# Groups with options that need something of the machine; of the others, those of the user's own are listed.
LISTED = ("parallel", "precision", "launcher", "optimizer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what may follow the command's name."""
    parser.add_argument("trust", nargs="*", help="trust=[my_package]: its options may be asked")
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument("--models", action="store_true", help="list every name that model=torchvision takes")


def run(arguments: argparse.Namespace) -> None:
    """Print the tables, or the names of models."""
    if arguments.models:
        list_models()
        return
    line, origin = settle(CommandLine.of(arguments.trust, arguments.config_dir))
    if line.overrides:
        raise ConfigurationError(f"{line.overrides[0]}: the doctor starts no run. Allowed: trust=[my_package].")
    examine(line.folders, origin.trust)


def examine(folders: Folders = OWN, trust: Trust | None = None) -> None:
    """Print the machine, then each option with yes, or why not and how to get it.

    folders: where options are looked up; trust: what the user trusts of them, None if all of them are the project's.
    """
    console = Console(highlight=False)
    machine = Table(title="This machine", title_justify="left", show_header=False)
    for name, text in describe_machine().items():
        machine.add_row(name, text)
    console.print(machine)
    table = Table(title="What it can run", title_justify="left")
    table.add_column("option", no_wrap=True)
    table.add_column("runs here", no_wrap=True)
    table.add_column("note", overflow="fold")
    told: dict[str, str] = {}  # by reason, the first option that it was given for
    for group in sorted(GROUPS, key=lambda group: (*LISTED, group).index(group)):
        for option in sorted({*options(group, folders)} - {*(() if group in LISTED else options(group))}):
            name, reason = f"{group}={option}", _untrusted(group, option, folders, trust)
            reason = reason or unavailable(group, option, folders)
            text = f"as {told[reason]}" if reason in told else reason or note(group, option, folders)
            table.add_row(name, "no" if reason else "yes", Text(text))
            if reason:
                told.setdefault(reason, name)
        table.add_section()
    console.print(table)


def describe_machine() -> dict[str, str]:
    """What the doctor's first table says, by name."""
    gpus = hardware.gpu_names()
    cuda = hardware.torch_cuda_version()
    if gpus:
        devices = ", ".join(gpus)
    elif hardware.driver_version():
        devices = "none that torch can use: " + (
            "CUDA_VISIBLE_DEVICES hides them" if cuda else "torch is a CPU build; pip install torch brings the CUDA one"
        )
    else:
        devices = "none: there is no NVIDIA driver"
    return {
        "python": platform.python_version(),
        "torch": f"{_version('torch')}, built for {f'CUDA {cuda}' if cuda else 'CPU'}",
        "torchvision": _version("torchvision"),
        "Horovod": _horovod(),
        "Apex": apex_installation.description() or "not installed",
        "GPUs": devices,
        "CPU": f"{hardware.cpu_model()}, {hardware.cpu_cores()} cores",
    }


def _untrusted(group: str, option: str, folders: Folders, trust: Trust | None) -> str | None:
    """Why an option of somebody's cannot be asked; None for one that can."""
    found = [] if trust is None else untrusted({group: read_option(group, option, folders)}, trust)
    return complaint(found).rstrip(".") if found else None


def note(group: str, option: str, folders: Folders = OWN) -> str:
    """What a runnable option comes to on this machine."""
    return declared(group, read_option(group, option, folders)).note()


def list_models() -> None:
    """Print every name that model=torchvision takes."""
    from manyheads.runner.model.torchvision.rank import names

    print("\n".join(names()))


def _horovod() -> str:
    version = horovod_installation.version()
    if version is None:
        return f"not installed: {horovod_installation.BUILD}"
    if horovod_installation.unavailable():
        return f"{version}, which can't be used; see parallel=horovod"
    return f"{version}, built with {horovod_installation.built_with()}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
