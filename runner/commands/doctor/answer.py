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
        for group in dict.fromkeys(each.group for each in self.options):
            own = [each for each in self.options if each.group == group]
            here, missing = ([each.name for each in own if each.runs_here is runs] for runs in (True, False))
            table.add_row(group, ", ".join(here), ", ".join(missing))
        console.print(table)
        for package in dict.fromkeys(each.package for each in self.options if each.package):
            found = ", ".join(each.words for each in self.options if each.package == package)
            console.print(f"Installed with {package}, and not imported until you choose it: {found}")
        if absent := [each.words for each in self.options if each.runs_here is False]:
            console.print(f"Why, and how to get it: {invocation.command('doctor', absent[0])}", soft_wrap=True)


@dataclass(frozen=True)
class ExplainedOptions(Answer):
    """Details of options."""

    options: list[ExaminedOption]

    def show(self) -> None:
        console = Console()
        for each in self.options:
            if each.package is not None:
                text = f"{each.words} is installed with {each.package}, and not imported until you choose it"
            elif each.runs_here:
                text = f"{each.words} runs here{f': {each.note}' if each.note else ''}"
            else:
                text = f"{each.words} does not run here: {each.reason}"
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
            f"{each.name}: {', '.join(f'{key} {value}' for key, value in each.found.items())}" for each in self.hosts
        ]
        faults = [f"error: {each.name}: {fault}." for each in self.hosts for fault in each.faults]
        for line in [*lines, *faults, *self.together]:
            console.print(line, soft_wrap=True)


@dataclass(frozen=True)
class ModelNames(Answer):
    """Every name that model=torchvision takes."""

    models: list[str]

    def show(self) -> None:
        print("\n".join(self.models))
