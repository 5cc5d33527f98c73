"""What classes of each kind derive from; imported only where a foreign config names a class that is no option's."""

import torch

from manyheads.runner.data.base.option import Data
from manyheads.runner.scheduler.rank import Schedule

BASES: dict[str, tuple[type, ...]] = {
    "model": (torch.nn.Module,),
    "loss": (torch.nn.Module,),
    "optimizer": (torch.optim.Optimizer,),
    "scheduler": (torch.optim.lr_scheduler.LRScheduler, Schedule),
    "data": (torch.utils.data.Dataset, Data),
}
