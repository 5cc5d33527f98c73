"""Finds out which options run on this machine, and why others do not."""

import platform
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata

from rich.filesize import decimal

from manyheads.runner.commands.doctor.answer import ExaminedMachine, ExaminedOption, ExplainedOptions
from manyheads.runner.config.lookup import OWN, Folders, options, own_sections, read_option, unavailable
from manyheads.runner.config.origin import Origin
from manyheads.runner.config.own_folders import package_of
from manyheads.runner.errors import UnknownName
from manyheads.runner.machine import hardware, software
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared
from manyheads.runner.option.tree import OPTION, TARGET
from manyheads.runner.run.progress import each
from manyheads.runner.wording import nearest

UNTYPED = Origin()
# Groups whose options may need something of the machine. Of other groups, only the user's own options are listed.
LISTED = ("parallel", "precision", "launcher", "optimizer", "logger")


def examine(folders: Folders = OWN, origin: Origin = UNTYPED) -> ExaminedMachine:
    """Examine the machine, and which options of each group it can run.

    folders: where options are looked up; origin: what the user trusts of them, and the installed packages whose options
    may be imported without being chosen.
    """
    pairs = [(group, name) for group, names in listed(folders).items() for name in names]
    options_here = [_examined(*pair, folders, origin) for pair in each(pairs, "examining options")]
    return ExaminedMachine(describe_machine(), _each_reason_once(options_here))


def explain(asked: Sequence[str], folders: Folders = OWN, origin: Origin = UNTYPED) -> ExplainedOptions:
    """Details of options: whether they run here and how, or why not and how to get them.

    asked: ``option``, ``group=option`` or ``group``. Raises UnknownName for anything else.
    """
    listing = [(group, name) for group in sorted((*GROUPS, *ENTRIES)) for name in options(group, folders)]
    explained = []
    for words in asked:
        matches = [(group, name) for group, name in listing if words in (group, name, f"{group}={name}")]
        if not matches:
            names = [words for group, name in listing for words in (name, f"{group}={name}")]
            allowed = "Allowed: a group, an option, group=option, or nothing for a table of all"
            raise UnknownName(f"{words} is not an option.{nearest(words, names)} {allowed}.", key="doctor", value=words)
        for group, name in matches:
            examined = _examined if words == group else _asked  # the user named the option itself
            explained.append(examined(group, name, folders, origin))
    return ExplainedOptions(_each_reason_once(explained))


def _each_reason_once(options_here: Sequence[ExaminedOption]) -> list[ExaminedOption]:
    """The options; one with the reason of an earlier option names that instead, since reasons may be long."""
    first: dict[str, str] = {}
    once = []
    for option in options_here:
        original = first.setdefault(option.reason, option.words) if option.reason else option.words
        once.append(option if original == option.words else replace(option, reason=f"as {original}"))
    return once


def _examined(group: str, name: str, folders: Folders, origin: Origin) -> ExaminedOption:
    """Examine an option that the user did not name: one of an installed package is imported only if it is trusted."""
    if (package := not_imported(group, name, origin)) is not None:
        return ExaminedOption(group, name, None, "", "", package)
    return _asked(group, name, folders, origin)


def _asked(group: str, name: str, folders: Folders, origin: Origin) -> ExaminedOption:
    reason = why_not(group, name, folders, origin)
    return ExaminedOption(group, name, reason is None, reason or "", note(group, name, folders) if not reason else "")


def listed(folders: Folders) -> dict[str, list[str]]:
    """The options in the table, by group: all options of the groups in LISTED, the user's own of other groups."""
    groups = sorted((*GROUPS, *ENTRIES), key=lambda group: (*LISTED, group).index(group))
    shown = ((group, {*options(group, folders)} - {*(() if group in LISTED else options(group))}) for group in groups)
    return {group: sorted(names) for group, names in shown if names}


def why_not(group: str, option: str, folders: Folders, origin: Origin) -> str | None:
    """Why an option cannot run here, or may not be imported to find out; None if it runs."""
    return origin.why_not({group: read_option(group, option, folders)}) or unavailable(group, option, folders)


def not_imported(group: str, option: str, origin: Origin) -> str | None:
    """The installed package that provides an option and may not be imported; None if none does, or it is trusted."""
    if (package := package_of(group, option)) is None:
        return None
    content = read_option(group, option, (package.folder,))
    sections = [content] if group in GROUPS else content.values()
    names = {name for section in sections for key in (TARGET, OPTION) if (name := section.get(key)) is not None}
    return None if all(map(origin.trusts, names)) else package.name


OTHERS = {"ROCm": "hip", "XPU": "xpu"}  # builds of torch besides CUDA's


def describe_machine() -> dict[str, str]:
    """The rows of the doctor's first table, by name."""
    gpus = hardware.gpu_names()
    builds = {
        "CUDA": hardware.torch_cuda_version(),
        **{name: hardware.torch_build(kind) for name, kind in OTHERS.items()},
    }
    built = next((f"{name} {version}" for name, version in builds.items() if version), "CPU")
    if gpus:
        devices = ", ".join(gpus)
    elif why := hardware.unused_gpus():
        devices = f"none usable by torch: {why}"
    else:
        devices = "none: there is no NVIDIA driver"
    return {
        "python": platform.python_version(),
        "torch": f"{_version('torch')}, built for {built}",
        "torchvision": _version("torchvision"),
        **_installed(),
        "GPUs": devices,
        "CPU": f"{hardware.cpu_model()}, {hardware.cpu_cores()} cores",
        "torch.compile": software.description(),
        "shared memory": _shared_memory(),
    }


def _shared_memory() -> str:
    """How much memory processes can share, in words."""
    try:
        return decimal(shutil.disk_usage("/dev/shm").total)
    except OSError:
        return "unknown"


def note(group: str, option: str, folders: Folders = OWN) -> str:
    """A note on how an available option runs on this machine; may be empty."""
    return "" if group in ENTRIES else declared(group, read_option(group, option, folders)).note()


def _installed() -> dict[str, str]:
    """The versions of libraries that this project's strategies use, by name."""
    installed = (declared("parallel", section).installed() for section in own_sections("parallel"))
    return {name: text for libraries in installed for name, text in libraries.items()}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
