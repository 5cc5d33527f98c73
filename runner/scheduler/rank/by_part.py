"""A schedule for each of several optimizers."""

from collections.abc import Callable
from typing import Any

from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.scheduler.rank.schedules import Schedule
from manyheads.runner.scheduler.scheduler_option import SchedulerOption


class ByPart(Schedule):
    """The schedule of each part of the optimizer, a Several: its own, or the run's. ``build``: build_schedule."""

    def __init__(self, option: SchedulerOption, optimizer: Any, build: Callable[..., Schedule], **updates: int) -> None:
        super().__init__(optimizer, **updates)
        sections = {
            name: SchedulerOption(section, key=f"optimizer.parts.{name}.scheduler")
            for name, section in optimizer.schedulers.items()
        }
        self._schedules = {
            name: build(sections.get(name, option), part, **updates) for name, part in optimizer.parts.items()
        }

    def set(self, update: int) -> None:
        for schedule in self._schedules.values():
            schedule.set(update)

    def evaluated(self, score: float | None, direction: str) -> None:
        for schedule in self._schedules.values():
            schedule.evaluated(score, direction)

    @property
    def reads_monitor(self) -> bool:
        return any(schedule.reads_monitor for schedule in self._schedules.values())

    def forget_best(self) -> None:
        for schedule in self._schedules.values():
            schedule.forget_best()

    def state_dict(self) -> StateDict:
        return {name: schedule.state_dict() for name, schedule in self._schedules.items()}

    def load_state_dict(self, state: StateDict) -> None:
        for name, schedule in self._schedules.items():
            schedule.load_state_dict(state.get(name, {}))
