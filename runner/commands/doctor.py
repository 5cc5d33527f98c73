"""``python -m runner doctor``: what this machine can run, and what is missing for the rest."""

import argparse
import platform
from importlib import metadata

from rich.console import Console
from rich.table import Table

from manyheads.runner.config.checks import apex as apex_compatibility
from manyheads.runner.config.checks import horovod as horovod_compatibility
from manyheads.runner.config.checks.complete import ONE_PROCESS_STRATEGIES, unavailable
from manyheads.runner.config.schema import options, read_option
from manyheads.runner.machine import apex as apex_installation
from manyheads.runner.machine import hardware
from manyheads.runner.parallel.horovod import installation as horovod_installation

HELP = "show which options run on this machine, and how to get the others"
LISTED = ("parallel", "precision", "launcher", "optimizer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what may follow the command's name."""
    parser.add_argument("--models", action="store_true", help="list every name that model=torchvision takes")


def run(arguments: argparse.Namespace) -> None:
    """Print the tables, or the names of models."""
    list_models() if arguments.models else examine()


def examine() -> None:
    """Print the machine, then each option with yes, or why not and how to get it."""
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
    for group in LISTED:
        for option in options(group):
            name, reason = f"{group}={option}", unavailable(group, option)
            text = f"as {told[reason]}" if reason in told else reason or note(group, option)
            table.add_row(name, "no" if reason else "yes", text)
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


def note(group: str, option: str) -> str:
    """What a runnable option comes to on this machine."""
    gpus = len(hardware.gpu_names())
    if text := apex_compatibility.note(group, option) or horovod_compatibility.note(group, option):
        return text
    if group == "parallel":
        if option not in ONE_PROCESS_STRATEGIES:
            return (
                f"{gpus} ranks over nccl" if gpus else "2 CPU ranks over gloo, unless launcher.nproc_per_node says more"
            )
        if option == "dp":
            return f"{gpus} replicas" if gpus > 1 else "one replica only: without several GPUs the same as single"
        return "one rank" + (" on the first GPU" if gpus else " on the CPU")
    if (group, option) == ("precision", "amp"):
        return "float16 with gradient scaler" if gpus else "bfloat16 on CPUs, float16 with precision.dtype=float16"
    if group == "launcher" and "warm" in read_option(group, option):
        return "the quickest start on one machine"
    return ""


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
    return f"{version}, built with {horovod_compatibility.built_with()}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
