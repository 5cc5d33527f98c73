"""A launcher, which is free of torch and says itself what it declares."""

from typing import Any, ClassVar

from manyheads.launchers.job import Job
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.spawn import Spawn
from manyheads.runner.option.rules import PLACE


class GreetingOption(LauncherOption):
    rules: ClassVar = {"greeting": PLACE}
    greeting: str | None

    def note(self) -> str:
        return f"says {self.greeting or 'nothing'}"


class Greeting(Spawn):
    """Says something before it starts the ranks."""

    def __init__(self, *, greeting: str | None, **options: Any):
        super().__init__(warm=True, **options)
        self.greeting = greeting

    def launch(self, job: Job) -> None:
        print(self.greeting or "", flush=True)
        super().launch(job)
