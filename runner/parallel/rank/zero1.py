"""parallel=zero1: DistributedDataParallel, with each parameter's optimizer state on one rank only.

Sources: Rajbhandari et al. 2020, stage 1 (https://arxiv.org/abs/1910.02054);
https://pytorch.org/docs/stable/distributed.optim.html.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.fit import lay_out_as_weights
from manyheads.runner.parallel.rank.process_group import Replicas
from manyheads.runner.parallel.rank.structure import own_settings
from manyheads.runner.parallel.rank.tensor_layout import TensorLayout
from manyheads.runner.run.checkpoint_places import StateDict


class Zero1(Replicas):
    """Each rank updates a part of the parameters, and sends them to the others."""

    gradient_kinds = ("sparse",)  # its buckets have one dtype

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        self._sharded = ShardedOptimizer(optimizer, rank=self.rank)
        self.layout = StateOfSome(self._sharded)
        return self._sharded

    def unlike(self) -> dict[int, bool]:
        sizes = self._sharded.sizes()
        return {sizes.index(min(sizes)): False, sizes.index(max(sizes)): True}


class ShardedOptimizer(ZeroRedundancyOptimizer):
    """An optimizer like ``optimizer``, over the same parameters, of which each rank keeps the state of some.

    Its state_dict is the plain optimizer's: complete on rank 0, without state elsewhere. All ranks must ask for it.
    """

    def __init__(self, optimizer: Optimizer, *, rank: int):
        self._is_first = rank == 0
        settings = own_settings(optimizer)
        groups = [{key: group[key] for key in ("params", *settings)} for group in optimizer.param_groups]
        super().__init__(groups, type(optimizer), **settings)
        self.defaults = optimizer.defaults

    def sizes(self) -> list[int]:
        """The number of parameter elements that each rank updates, in rank order."""
        return [
            sum(parameter.numel() for group in groups for parameter in group["params"])
            for groups in self._partition_parameters()  # type: ignore[attr-defined]
        ]

    def state_dict(self) -> StateDict:
        self.consolidate_state_dict(to=0)
        if self._is_first:
            state = super().state_dict()
            self._all_state_dicts: list[Any] = []  # torch would keep the whole state until the next time
            return state
        return {"state": {}, "param_groups": self.optim.state_dict()["param_groups"]}

    def own_state_dict(self) -> StateDict:
        """The plain optimizer's state_dict, with only the state that this rank keeps."""
        states = self.optim.state_dict()["state"]
        state = {number: states[index] for index, number in enumerate(self.own_numbers()) if index in states}
        return {**Optimizer.state_dict(self), "state": state}

    def own_numbers(self) -> list[int]:
        """Numbers of the plain optimizer's parameters whose state this rank keeps, in its own optimizer's order."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        numbers = {parameter: number for number, parameter in enumerate(parameters)}
        return [numbers[parameter] for group in self.optim.param_groups for parameter in group["params"]]

    def load_state_dict(self, state_dict: StateDict) -> None:
        super().load_state_dict({**state_dict, "state": {**state_dict["state"]}})  # a copy, which torch empties
        self.state.clear()  # torch's second copy, which nothing reads
        lay_out_as_weights(self.optim)


class StateOfSome(TensorLayout):
    """Each rank has the whole model, and the optimizer's state of some parameters."""

    def __init__(self, optimizer: ShardedOptimizer):
        self._optimizer = optimizer

    def split_optimizer(self, state: StateDict) -> StateDict:
        numbers = set(self._optimizer.own_numbers())
        return {**state, "state": {number: value for number, value in state["state"].items() if number in numbers}}

    def share_optimizer(self, optimizer: Optimizer) -> StateDict:
        return self._optimizer.own_state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> Mapping[Tensor, StateDict]:
        return self._optimizer.optim.state
