"""task=regression: numbers for each sample; batches are (inputs, values)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Metric
from manyheads.runner.task.rank.targets import refuse_unlike, target_of, widened
from manyheads.runner.task.rank.task import Task, logits_of, reduction_of

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data

ROUNDED = 1e-13  # fraction of a sum of squares below which a variance is nothing but rounding


class MAE(Metric):
    """Mean absolute error, in the unit of the targets."""

    direction = "min"
    version = 2  # 1: of targets rounded to the outputs' dtype
    shapes = MappingProxyType({"apart": (), "values": ()})

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        return float(sums["apart"] / sums["values"]) if sums["values"] else None


class R2(Metric):
    """R², the mean over a sample's ``outputs`` of the fraction of the targets' variance that is explained.

    1 at best, 0 for always predicting an output's mean; for an output whose targets are all equal 1 if they are
    predicted exactly, else 0. Source: scikit-learn's r2_score with multioutput="uniform_average".
    """

    version = 2  # 1: of all outputs together

    def __init__(self, name: str, *, outputs: int = 1, **names: str):
        super().__init__(name, **names)
        self.outputs = outputs
        self.shapes = {"values": (), **dict.fromkeys(("squares", "shifted", "shifted_squares"), (outputs,))}

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        samples = float(sums["values"]) / self.outputs
        if samples < 2:
            return None
        spread = sums["shifted_squares"] - sums["shifted"] ** 2 / samples
        is_constant = spread <= ROUNDED * sums["shifted_squares"]
        explained = 1 - sums["squares"] / spread.masked_fill(is_constant, 1)
        return float(torch.where(is_constant, (sums["squares"] == 0).double(), explained).mean())


class Regression(Task):
    """Any loss of (outputs, values) of the same shape; outputs (samples, 1) also fit values (samples,).

    The mean over samples of each one's mean over its values. Both are compared in the wider of their dtypes, and in at
    least fp32; statistics are in fp64. ``shift``: the targets of the data's first sample, (values,), which is
    subtracted from all targets before they are squared, so that little is rounded away from their variance.

    If the data has a ``scale``, the model's outputs are standardized by it: the loss has the gradient of that of
    standardized targets, and the value of that of the targets themselves, in whose unit all metrics are.
    """

    version = 2  # 1: targets rounded to the outputs' dtype
    monitor = "mae"

    def __init__(self, *, loss: nn.Module, reduction: str, data: "Data | None" = None):
        super().__init__()
        self.scale = None if data is None else data.scale
        self.criterion = loss
        self.reduction = reduction_of(loss) if reduction == "auto" else reduction
        self.shift = torch.zeros(1, dtype=torch.float64)
        self.metrics: tuple[Metric, ...] = (MAE("mae", label="MAE"), R2("r2", label="R2"))

    def converted(self, batch: Any) -> Any:
        target_of(batch, "regression", "(tensor of shape (10,), 0.5)")
        return batch

    def see_first(self, batch: Any) -> None:
        self.shift = batch[1][0].double().reshape(-1)
        self.metrics = (MAE("mae", label="MAE"), R2("r2", outputs=len(self.shift), label="R2"))

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        values, targets = _alike(outputs, batch)
        if self.scale is None:
            return self.criterion(values, targets)
        dtype = widened(logits_of(outputs)).dtype
        loss = self.criterion(values.to(dtype), ((targets - self.scale[0]) / self.scale[1]).to(dtype))
        reported = self.criterion(*self.scored(outputs, batch)).to(loss.dtype)
        return loss + (reported - loss).detach()

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        values, targets = (tensor.double().reshape(len(tensor), -1) for tensor in self.scored(outputs, batch))
        if targets.shape[1] != len(self.shift):
            raise ConfigurationError(
                f"a batch has targets with {targets.shape[1]} values per sample, the first sample of the data has "
                f"{len(self.shift)}. task=regression needs as many for each; write a task of your own (task=custom)."
            )
        apart, shifted = values - targets, targets - self.shift
        return {
            "apart": apart.abs().sum(),
            "values": torch.tensor(targets.numel()),
            "squares": apart.square().sum(0),
            "shifted": shifted.sum(0),
            "shifted_squares": shifted.square().sum(0),
        }

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        values, targets = _alike(outputs, batch)
        return (values if self.scale is None else values.detach() * self.scale[1] + self.scale[0]), targets


def _alike(outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Outputs and targets in one shape and dtype: (samples,) and (samples, 1) would broadcast to all pairs of samples.

    Nothing is rounded: the dtype is the wider one, at least fp32.
    """
    values, targets = widened(logits_of(outputs)), batch[1]
    if values.ndim == targets.ndim + 1 and values.shape[-1] == 1:
        values = values.squeeze(-1)
    refuse_unlike(values, targets, "regression")
    dtype = torch.promote_types(values.dtype, targets.dtype)
    return values.to(dtype), targets.to(dtype)
