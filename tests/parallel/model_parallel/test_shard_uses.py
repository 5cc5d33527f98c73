"""Ranks that shard weights, of a model that skips some of them on one rank."""

import pytest
import torch.distributed as dist
from torch import Tensor, nn

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small

pytestmark = pytest.mark.processes


class Branches(nn.Module):
    """Every rank goes its own way, through weights of the same size. ``together``: all go the first one."""

    def __init__(self, *, num_classes: int, together: bool = False):
        super().__init__()
        self.stem = nn.Linear(3 * 8 * 8, 4)
        self.ways = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, num_classes)
        self.together = together

    def forward(self, images: Tensor) -> Tensor:
        way = 0 if self.together else dist.get_rank()
        return self.head(self.ways[way](self.stem(images.flatten(1))))


def train(path, *overrides):
    """Train Branches on two ranks."""
    folder = RunFolder(path)
    model = "parallel=fsdp", "launcher.nproc_per_node=2", "model=custom", f"model._target_={__name__}.Branches"
    folder.write_config(small(*model, "trainer.max_steps=4", "trainer.log_every=1", *overrides))
    launch(prepare(folder))


@pytest.mark.parametrize(
    ("units", "cause"),
    [
        ("auto", r"ways\.\d\.\w+ gets no gradient [01] times on rank 0, and [01] times on rank 1"),
        ("[ways.*]", r"ways\.\d is called [01] times on rank 0, and [01] times on rank 1"),
    ],
)
def test_weights_that_only_one_rank_uses_end_the_run(tmp_path, units, cause):
    """Else the gradient of a part of one weight would be that of another, and its values those of another."""
    with pytest.raises(ConfigurationError, match=f"ranks have computed with different weights: {cause}"):
        train(tmp_path, f"parallel.units={units}")


def test_weights_that_no_rank_uses_are_no_difference(tmp_path):
    train(tmp_path, "+model.together=true")
