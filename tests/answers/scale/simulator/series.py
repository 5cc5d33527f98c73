"""Predictions of published series from their smallest row: ``python -m tests.answers.scale.simulator.series``."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from manyheads.runner.answers.scale.simulator import catalog
from manyheads.runner.answers.scale.simulator.interval import ON_GPUS
from manyheads.runner.answers.scale.simulator.predict import Measured, PredictedUpdate, predict
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.config.lookup import read_option
from manyheads.runner.option.declared import declared
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.run import yaml_text
from tests.answers.scale.simulator import models

PUBLISHED = Path(__file__).parent / "published"


@dataclass(frozen=True)
class Score:
    """Of a series: relative errors at the largest number of devices, and how many rows are within their intervals."""

    largest: float
    linear_largest: float
    within: int
    rows: int

    @property
    def skill(self) -> float:
        """At the largest number of devices: 1 without any error, 0 if it is as large as linear extrapolation's."""
        return 1 - self.largest / self.linear_largest if self.linear_largest else 0.0


@dataclass(frozen=True)
class Series:
    """A published series. ``content``: its YAML."""

    name: str
    content: dict[str, Any]

    @property
    def rows(self) -> dict[int, float]:
        """Samples per second of all devices together, by the number of devices."""
        found = {int(count): float(value) for count, value in self.content["rows"].items()}
        each = self.content.get("per_device", False)
        return {count: value * count if each else value for count, value in sorted(found.items())}

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        model = dict(self.content["model"])
        return getattr(models, model.pop("kind"))(**model)

    def exchanges(self, devices: int) -> Exchanges:
        """Of the strategy, as its option declares them, with what differs in another framework."""
        strategy = dict(self.content["parallel"])
        declares = strategy.pop("exchanges", {})
        section = {**read_option("parallel", strategy.pop("name")), **strategy}
        return replace(declared("parallel", section).exchanges(devices=devices), **declares)

    def step(self, devices: int) -> DeviceUpdate:
        """The update of one device, whose speed is not known."""
        known = {key: self._of(key, devices) for key in ("samples", "micro_batches")}
        return DeviceUpdate(self.units, forward=1 - models.BACKWARD, backward=models.BACKWARD, **known)

    def _of(self, key: str, devices: int) -> Any:
        """A value, or the one for this number of devices."""
        value = self.content.get(key, 1)
        return value[devices] if isinstance(value, dict) else value

    def seconds(self, devices: int) -> float:
        """Of a measured update."""
        step = self.step(devices)
        return devices * step.samples * step.micro_batches / self.rows[devices]

    @cached_property
    def predictions(self) -> list[PredictedUpdate]:
        """From the smallest row alone."""
        smallest, *others = self.rows
        cluster = catalog.cluster(catalog.device(self.content["device"]), catalog.network(self.content["network"]))

        def target(step: DeviceUpdate, devices: int) -> DeviceUpdate:
            return replace(step, micro_batches=self.step(devices).micro_batches)

        measured = Measured(smallest, self.seconds(smallest), self.step(smallest), launches=ON_GPUS)
        return predict(measured, self.exchanges, cluster, devices=others, target=target)

    @cached_property
    def score(self) -> Score:
        smallest, largest = min(self.rows), max(self.rows)
        errors, within = {}, 0
        for each in self.predictions:
            step = self.step(each.devices)
            batch = each.devices * step.samples * step.micro_batches
            truth = self.rows[each.devices]
            errors[each.devices] = abs(batch / each.seconds / truth - 1)
            within += batch / each.high <= truth <= batch / each.low
        linear = abs(self.rows[smallest] / smallest * largest / self.rows[largest] - 1)
        return Score(errors[largest], linear, within, len(errors))


def all_series() -> Iterator[Series]:
    for path in sorted(PUBLISHED.glob("*.yaml")):
        content = yaml_text.parse(path.read_text())
        for name, each in content["series"].items():
            shared = {key: value for key, value in content.items() if key != "series"}
            yield Series(f"{path.stem}: {name}", {**shared, **each})


def table(found: list[Series]) -> str:
    """The errors at the largest number of devices, in per cent, and the rows within their intervals, in Markdown."""
    lines = ["| series | devices | error | linear | within |", "|---|---|---|---|---|"]
    for each in found:
        score, rows = each.score, each.rows
        errors = f"{100 * score.largest:.1f} | {100 * score.linear_largest:.1f}"
        lines.append(f"| {each.name} | {min(rows)}–{max(rows)} | {errors} | {score.within}/{score.rows} |")
    return "\n".join(lines)


if __name__ == "__main__":
    chosen = sys.argv[1:]
    sys.stdout.write(table([each for each in all_series() if not chosen or each.name.startswith(tuple(chosen))]) + "\n")
