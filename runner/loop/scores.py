"""The measurements of a run: the task's metrics, and those that the config's ``metrics`` adds."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.reduction import refuse_other_reduction
from manyheads.runner.metrics.metric import Collected, Metric
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.run.json_types import Numbers, ScoresJson
from manyheads.runner.task.rank.task import Task
from manyheads.runner.wording import loss_text, nearest

Statistics = dict[str, Tensor]  # float64 on the CPU, by name
REST = ".rest"  # suffix of a statistic's name: the sum of what its own sum leaves out (exact_parts)
SPLITTER = 2**27 + 1


class Observed(NamedTuple):
    """Observations of a batch until its statistics are added up: the task's, and those of each added metric.

    ``extremes``: the least and the greatest of the targets that have bounds, each (), if there are any.
    """

    by_task: Any
    by_metrics: list[Any]
    extremes: tuple[Tensor, Tensor] | None = None


def _is_alike(metric: Metric, other: Metric) -> bool:
    """Whether their statistics are the same, and need to be computed only once."""
    return metric is other or (
        metric.family is not None and metric.family == other.family and metric.shapes == other.shapes
    )


def exact_parts(values: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers as float64 in two parts of 26 bits each: sums of such parts are exact, hence the same in any order.

    Timing and interruptions decide in which groups batches and ranks are added up; otherwise the last digit would
    depend on that. Exact up to sums of 2^27 times the smallest part. Source: T. J. Dekker, A floating-point technique
    for extending the available precision, 1971.
    """
    values = values.double()
    scaled = values * SPLITTER
    head = scaled - (scaled - values)
    head = torch.where(head.isfinite(), head, values)
    return head, (values - head).nan_to_num(0.0)


class Scores:
    """Statistics of batches, and the columns that follow from them.

    ``monitor``: the column that makes an epoch the best, or "auto" for the task's own. Raises ConfigurationError if
    it is not a column, or if two metrics have the same name. ``evaluations``: by split, in words, how evaluations are
    made if the same weights have other values for the complete data.
    """

    def __init__(
        self,
        task: Task,
        added: Sequence[Metric] = (),
        *,
        monitor: str = "auto",
        evaluations: Mapping[str, str] | None = None,
    ):
        self.task, self.is_mean, self.evaluations = task, task.reduction != "sum", dict(evaluations or {})
        self.unchecked = True  # whether the next batch is the first of training or of an evaluation
        self.proves_reduction = False  # whether what the loss returns is compared with what the task declares
        self.metrics = [*task.metrics, *added]
        self.collected = [metric for metric in self.metrics if isinstance(metric, Collected)]
        # Full names of each metric's statistics: a task's metrics share them; added ones share them if they are alike.
        first = [next(other for other in added if _is_alike(metric, other)) for metric in added]
        self.added = [metric for metric in dict.fromkeys(first) if not metric.is_collected]
        self._named = [{name: name for name in metric.shapes} for metric in task.metrics]
        self._named += [{name: f"{metric.name}.{name}" for name in metric.shapes} for metric in first]
        pairs = list(zip(self.metrics, self._named, strict=True))
        self._of_evaluation = pairs
        self._of_training = [pair for pair in pairs if not pair[0].is_collected]
        self.shapes = {named[name]: shape for metric, named in pairs for name, shape in metric.shapes.items()}
        owners = [*(task for _ in task.metrics), *first]
        summed = [named for owner, named in zip(owners, self._named, strict=True) if not hasattr(owner, "add_up")]
        self.shapes |= {full + REST: self.shapes[full] for named in summed for full in named.values()}
        self._none = torch.zeros(sum(map(math.prod, self.shapes.values())), dtype=torch.float64)
        self.monitor = f"val_{task.monitor}" if monitor == "auto" else monitor
        columns = self.names("val")
        if len({*columns}) < len(columns):
            raise ConfigurationError(
                f"metrics: two metrics have the same name; there are {', '.join(columns)}. Rename one.", key="metrics"
            )
        if self.monitor not in columns:
            raise ConfigurationError.at(
                "checkpoint.monitor",
                self.monitor,
                f" is not measured.{nearest(self.monitor, columns)} Allowed: auto, {', '.join(columns)}.",
                allowed=["auto", *columns],
            )

    def loss(self, outputs: Any, batch: Batch) -> Tensor:
        """The loss of a batch, (); targets are checked first if that is due. Raises ConfigurationError."""
        if self.unchecked:
            self.unchecked = False
            self.task.check(outputs, batch.content, batch.own_ids.tolist())
            if self.proves_reduction and batch.count and batch.partners is None:
                self.proves_reduction = False
                refuse_other_reduction(self.task, outputs, batch.content)
        if (partners := batch.partners) is None:
            return self.task.loss(outputs, batch.content)
        return self.task.mixed_loss(outputs, batch.content, partners.content, partners.share)

    def passed(self, loss: Tensor, outputs: Any, batch: Batch) -> ForwardResult:
        """The results of a forward pass. Raises ConfigurationError for a loss that is not a single number."""
        if loss.ndim:
            remedy = "Set loss.reduction=mean."
            if not hasattr(self.task, "criterion"):
                owner = type(self.task).__name__
                is_inside = self.task.inputs(batch.content) is batch.content
                owner = "the model" if is_inside else f"{owner}.loss"
                remedy = f"Let {owner} return the sum over the batch, or the mean, as its reduction declares."
            raise ConfigurationError(
                f"loss: a tensor of shape {tuple(loss.shape)} where a single number is needed. {remedy}", key="loss"
            )
        observed = self.observe(outputs, batch.content) if batch.count else None
        scale = batch.counted if self.is_mean else 1
        if not batch.counted:  # a mean over nothing is not a number
            loss = torch.zeros_like(loss)
        taken = batch.epoch, batch.own_ids
        return ForwardResult(loss.detach(), scale, batch.count, batch.counted, observed, taken)

    # -- statistics ----------------------------------------------------------------------------------

    def observe(self, outputs: Any, batch: Any) -> Observed:
        """Observe a batch, without gradients."""
        targets = self.task.bounded(batch)
        extremes = None if targets is None or not targets.numel() else (*torch.aminmax(targets),)
        if not self.added:
            return Observed(self.task.observe(outputs, batch), [], extremes)
        with torch.no_grad():
            by_metrics = [metric.observe(outputs, batch) for metric in self.added]
            return Observed(self.task.observe(outputs, batch), by_metrics, extremes)

    def add_up(self, observed: Sequence[Observed | Statistics]) -> Statistics:
        """The statistics of these batches, some of which may be statistics already. Waits for the device."""
        if rows := [self.flatten(statistics) for statistics in observed if isinstance(statistics, dict)]:
            return self.unflatten(torch.stack(rows).sum(0))
        kept = [batch for batch in observed if isinstance(batch, Observed)]
        self._refuse_outside([batch.extremes for batch in kept if batch.extremes is not None])
        sums = _sums(self.task, [batch.by_task for batch in kept])
        for index, metric in enumerate(self.added):
            metric_sums = _sums(metric, [batch.by_metrics[index] for batch in kept])
            sums |= {f"{metric.name}.{name}": value for name, value in metric_sums.items()}
        return self.unflatten(self.flatten(sums).cpu())

    def _refuse_outside(self, extremes: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Raises ConfigurationError for targets outside the task's bounds; NaN is outside."""
        if extremes:
            lows, highs = (torch.stack(ends) for ends in zip(*extremes, strict=True))
            least, greatest = torch.stack([lows.amin(), highs.amax()]).tolist()
            low, high = self.task.bounds
            if not low <= least:
                raise self.task.refusal(least, "")
            if not greatest <= high:
                raise self.task.refusal(greatest, "")

    def flatten(self, sums: Mapping[str, Tensor]) -> Tensor:
        """All statistics in one vector, (n,) float64, in the same order on all ranks; zeros for absent ones."""
        if not sums:
            return self._none
        parts = [
            sums[name].to(torch.float64).reshape(-1) if name in sums else torch.zeros(math.prod(shape)).double()
            for name, shape in self.shapes.items()
        ]
        devices = {part.device for part in parts}
        if len(devices) > 1:
            parts = [part.cpu() for part in parts]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def unflatten(self, row: Tensor) -> Statistics:
        """The inverse of ``flatten``."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        split = zip(self.shapes.items(), row.split(sizes), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in split}

    # -- columns -------------------------------------------------------------------------------------

    def names(self, prefix: str) -> list[str]:
        """The columns of one split: its loss, then its metrics; for training, those that sums can express."""
        return [f"{prefix}_loss", *(f"{prefix}_{metric.name}" for metric, _ in self._pairs(prefix))]

    def of(self, prefix: str, sums: Any) -> dict[str, float | None]:
        """The values of ``names`` from Sums; None if nothing was measured."""
        loss = sums.whole_loss / sums.counted if sums.counted else None
        of_loss = {"loss": sums.whole_loss, "counted": sums.counted}
        values = [self._value(*pair, sums.statistics, of_loss) for pair in self._pairs(prefix)]
        return dict(zip(self.names(prefix), [loss, *values], strict=True))

    def _pairs(self, prefix: str) -> list[tuple[Metric, dict[str, str]]]:
        """The metrics of a split, each with the full names of its statistics."""
        return self._of_training if prefix == "train" else self._of_evaluation

    @property
    def direction(self) -> str:
        """The better direction of the monitored column: max or min."""
        return next((m.direction for m in self.metrics if f"val_{m.name}" == self.monitor), "min")

    def is_better(self, row: Numbers, best: Numbers | None) -> bool:
        """Whether a row of epochs.csv is better than the best one so far."""
        value, sign = row[self.monitor], 1 if self.direction == "max" else -1
        if value is None or math.isnan(value):
            return False
        record = (best or {}).get(self.monitor)  # a run of another task, which this one resumes, has none
        return record is None or sign * value > sign * record

    def describe(self) -> ScoresJson:
        """The description of the metrics in result.json, by which a report names them and orders runs."""
        metrics = {metric.name: metric.describe() for metric in self.metrics}
        return {
            "monitor": self.monitor,
            "direction": self.direction,
            "version": self.task.version,
            "evaluations": self.evaluations,
            "metrics": metrics,
        }

    # -- words ---------------------------------------------------------------------------------------

    def live(self, row: Numbers) -> str:
        """The first metric of training, for the live line; empty if there is none, or not yet."""
        value = row.get(f"train_{self.metrics[0].name}") if self.metrics else None
        return "" if value is None else self.metrics[0].live(value)

    def line(self, split: str, row: Numbers) -> str:
        """Loss and first metric of a split, for an epoch's line; empty if it was not measured."""
        if row[f"{split}_loss"] is None:
            return ""
        value = row.get(f"{split}_{self.metrics[0].name}") if self.metrics else None
        return loss_text(row[f"{split}_loss"]) + ("" if value is None else f" {self.metrics[0].text(value)}")

    def sentence(self, row: Numbers) -> str:
        """Loss and all metrics of the split that was tested, evaluated or trained on; empty if none was."""
        for split in ("test", "val", "train"):
            if row.get(f"{split}_loss") is not None:
                shown = [m for m in self.metrics if m.is_shown]
                pairs = [(m, value) for m in shown if (value := row.get(f"{split}_{m.name}")) is not None]
                first, *more = [f"{m.label} {m.text(value)}" for m, value in pairs] or [""]
                rest = f" ({', '.join(more)})" if more else ""
                return f"{split} loss {loss_text(row[f'{split}_loss'])}" + (f", {first}{rest}" if first else "")
        return ""

    @staticmethod
    def _value(metric: Metric, named: dict[str, str], statistics: Statistics, of_loss: dict[str, Any]) -> float | None:
        if any(full not in statistics for full in named.values()):
            return None
        totals = {name: statistics[full] + statistics.get(full + REST, 0) for name, full in named.items()}
        return metric.value({**of_loss, **totals})


def _sums(owner: Task | Metric, observed: Sequence[Any]) -> Statistics:
    """The statistics of these batches, with the rest of each, unless the owner counts them itself."""
    add_up: Callable[[Sequence[Any]], Statistics] | None = getattr(owner, "add_up", None)
    if add_up is not None:
        return add_up(observed)
    sums: Statistics = {}
    for name, first in observed[0].items():
        values = [batch_sums[name] for batch_sums in observed]
        if first.is_floating_point():
            head, rest = exact_parts(torch.stack(values))
            sums |= {name: head.sum(0), name + REST: rest.sum(0)}
        else:
            sums[name] = sum(values[1:], values[0])
    return sums
