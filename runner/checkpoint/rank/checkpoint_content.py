"""The content of a checkpoint: a view of the training state, its copy on the CPU, and the part kept in best.pt."""

from typing import Any, Protocol

from torch import Tensor

from manyheads.runner.checkpoint.rank.lazy import replaced
from manyheads.runner.checkpoint.rank.load import VERSION
from manyheads.runner.run.checkpoint_places import StateDict


class View(Protocol):
    """One rank's view of the state of training. All ranks call both methods."""

    def whole(self) -> StateDict:
        """The state of the whole model, complete on the first rank."""

    def shares(self) -> StateDict:
        """The state of the whole model, with this rank's part of each tensor as a RankShare."""


def best_of(state: StateDict) -> StateDict:
    """The content of best.pt: the evaluated weights and the progress of a checkpoint's ``state``, which is larger."""
    return {"version": state.get("version", VERSION), "model": evaluated(state), "progress": state["progress"]}


def evaluated(state: StateDict) -> dict[str, Tensor]:
    """The weights that evaluations use: the trained ones, or their average."""
    weights, average = state["model"], state.get("average", {})
    if not average.get("is_evaluated"):
        return weights
    means = {name: mean.to(weights[name].dtype) for name, mean in average["weights"].items() if name in weights}
    return {name: means.get(name, weight) for name, weight in weights.items()}


def kept(value: Any) -> Any:
    """A copy of a state, with its tensors on the CPU."""
    return replaced(value, Tensor, lambda tensor: tensor.detach().to("cpu", copy=True))
