"""The answer of the command ``doctor``."""

from dataclasses import dataclass
from typing import Annotated

from rich.table import Table

from manyheads.runner.errors import ExitCode
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import Console
from manyheads.runner.run.answer import Answer


@dataclass(frozen=True)
class ExaminedOption:
    """Whether and how an option runs on this machine."""

    group: str
    name: str
    runs_here: Annotated[bool | None, "null if it was not checked, since its code may not be imported"]
    reason: Annotated[str, "why it does not run here, and how to get it; as an earlier option, if it is the same"]
    note: Annotated[str, "how it runs here; may be empty"]
    package: Annotated[str | None, "the installed package that provides it, if it was not imported"] = None

    @property
    def words(self) -> str:
        """The option as it is typed."""
        return f"{self.group}={self.name}"


@dataclass(frozen=True)
class ExaminedMachine(Answer):
    """This machine's hardware and software, and the options that it can run."""

    machine: Annotated[dict[str, str], "descriptions of its parts, by name"]
    options: list[ExaminedOption]

    def show(self) -> None:
        console = Console()
        machine = Table(title="This machine", title_justify="left", show_header=False)
        for name, text in self.machine.items():
            machine.add_row(name, text)
        console.print(machine)
        table = Table(title="What it can run", title_justify="left")
        for title in ("", "runs here", "not here"):
            table.add_column(title)
        for group in dict.fromkeys(option.group for option in self.options):
            members = [option for option in self.options if option.group == group]
            here, missing = ([option.name for option in members if option.runs_here is runs] for runs in (True, False))
            table.add_row(group, ", ".join(here), ", ".join(missing))
        console.print(table)
        for package in dict.fromkeys(option.package for option in self.options if option.package):
            installed = ", ".join(option.words for option in self.options if option.package == package)
            console.print(f"Installed with {package}, and not imported until you choose it: {installed}")
        if absent := [option.words for option in self.options if option.runs_here is False]:
            console.print(f"Why, and how to get it: {invocation.command('doctor', absent[0])}", soft_wrap=True)


@dataclass(frozen=True)
class ExplainedOptions(Answer):
    """Details of options."""

    options: list[ExaminedOption]

    def show(self) -> None:
        console = Console()
        for option in self.options:
            if option.package is not None:
                text = f"{option.words} is installed with {option.package}, and not imported until you choose it"
            elif option.runs_here:
                text = f"{option.words} runs here{f': {option.note}' if option.note else ''}"
            else:
                text = f"{option.words} does not run here: {option.reason}"
            console.print(f"{text}.", soft_wrap=True)


@dataclass(frozen=True)
class ExaminedHost:
    """A machine among several."""

    name: str
    found: Annotated[dict[str, str], "its address, versions, round trip, clock, by name"]
    faults: Annotated[list[str], "what prevents it from taking part"]


@dataclass(frozen=True)
class ExaminedHosts(Answer):
    """Whether several machines can run together."""

    hosts: list[ExaminedHost]
    together: Annotated[list[str], "sentences about all of them, such as how fast they communicate"]
    can_run: bool

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.can_run else ExitCode.NO

    def show(self) -> None:
        console = Console()
        lines = [
            f"{host.name}: {', '.join(f'{key} {value}' for key, value in host.found.items())}" for host in self.hosts
        ]
        faults = [f"error: {host.name}: {fault}." for host in self.hosts for fault in host.faults]
        for line in [*lines, *faults, *self.together]:
            console.print(line, soft_wrap=True)


@dataclass(frozen=True)
class ModelNames(Answer):
    """Every name that model=torchvision takes."""

    models: list[str]

    def show(self) -> None:
        print("\n".join(self.models))
