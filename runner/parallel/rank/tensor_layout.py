"""How the tensors of a model and of its optimizer lie on the ranks; in the plain case each rank has all of them."""

from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer

from manyheads.runner.run.checkpoint_places import StateDict


class TensorLayout:
    """Which part of the state each rank has, for checkpoints, digests and comparisons: here all of it, unchanged.

    Tensors are weights, or gradients under their weights' names, which are the user's own. All ranks call what gathers
    or shares. A whole optimizer's state_dict is that of an optimizer of the whole model, in one process.
    """

    def local(self, tensor: Tensor) -> Tensor:
        """This rank's part of a weight of its model, or of a gradient, as a plain tensor in the same memory."""
        return tensor

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The whole model's tensors from each rank's parts, complete on rank 0; others may return none."""
        return tensors

    def split(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """This rank's parts of the whole model's tensors, which may be Lazy; the inverse of ``gather``."""
        return tensors

    def share(self, tensors: dict[str, Tensor]) -> StateDict:
        """What this rank writes of the tensors that ``gather`` would return: as they are, or parts as a RankShare."""
        return tensors

    def gather_optimizer(self, optimizer: Optimizer) -> StateDict:
        """The whole optimizer's state_dict, complete on rank 0."""
        return optimizer.state_dict()

    def split_optimizer(self, state: StateDict) -> StateDict:
        """This rank's part of a whole optimizer's state_dict; the inverse of ``gather_optimizer``."""
        return state

    def share_optimizer(self, optimizer: Optimizer) -> StateDict:
        """What this rank writes of the whole optimizer's state_dict, as in ``share``."""
        return optimizer.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> Mapping[Tensor, StateDict]:
        """The optimizer's state in this rank's memory, by parameter."""
        return optimizer.state
