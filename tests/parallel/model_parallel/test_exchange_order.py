"""Messages between stages end under NCCL, however many ranks, stages of each, and pieces or micro-batches there are.

Each rank runs alone, in torch's fake process group, which answers at once.
"""

from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.parallel.rank.model_parallel.flow import entering, follow, twin_of
from manyheads.runner.parallel.rank.model_parallel.pipeline_schedule import SCHEDULES, Pipeline
from manyheads.runner.parallel.rank.model_parallel.stages import Stages, choose_windows
from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Assembly
from tests.parallel.nccl_rules.calls import RecordedCalls
from tests.parallel.nccl_rules.replay import check_calls

WIDTH = 2
SIZES = [*product((2, 3, 4), (1, 2, 3))]  # ranks, stages of each


@pytest.fixture
def checked(tmp_path):
    """A function that runs a program as each of some ranks, and replays their calls; returns their number."""

    def run(ranks: int, program: Any) -> int:
        for rank in range(ranks):
            dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
            try:
                with RecordedCalls(tmp_path / f"calls_{rank}"):
                    program(rank)
            finally:
                dist.destroy_process_group()
        return check_calls(tmp_path, ranks)

    return run


def pipeline(rank: int, ranks: int, stages: int, *, rows: int, schedule: str = "auto") -> Pipeline:
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(ranks * stages)])
    twin = twin_of(model)
    flow = follow(twin, torch.ones(rows, WIDTH))
    windows = choose_windows(flow, model, ranks * stages, "auto")
    mine = Stages(model, flow, windows, range(rank, len(windows), ranks))
    options: dict[str, Any] = {"group": dist.group.WORLD, "device": torch.device("cpu"), "carried": entering}
    return Pipeline(mine, twin, schedule=schedule, **options)


@pytest.mark.parametrize(("ranks", "stages"), SIZES)
@pytest.mark.parametrize("missing", range(4))
def test_an_evaluation_ends(checked, ranks, stages, missing):
    """Of as many pieces as ranks, and of fewer; of unequal ones too."""
    rows = ranks - missing if missing < ranks else 2 * ranks + 1
    inputs = torch.ones(rows, WIDTH)
    messages = checked(ranks, lambda rank: pipeline(rank, ranks, stages, rows=rows).evaluate(inputs))
    assert messages > 0


@pytest.mark.parametrize(("ranks", "stages"), SIZES)
def test_an_evaluation_of_a_single_sample_has_as_many_pieces(checked, tmp_path, ranks, stages):
    """Else pipelines that share sharded weights would gather them in different numbers, and wait for ever."""

    def messages(rows: int) -> int:
        for calls in tmp_path.iterdir():
            calls.unlink()
        return checked(ranks, lambda rank: pipeline(rank, ranks, stages, rows=1).evaluate(torch.ones(rows, WIDTH)))

    assert messages(1) == messages(ranks)


class Step:
    """Forward and backward passes of micro-batches, whose loss is a sum."""

    autocast = staticmethod(nullcontext)

    def objective(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Any]:
        return outputs.sum(), batch

    def scaled(self, objective: Tensor) -> Tensor:
        return objective


@pytest.mark.parametrize(
    ("ranks", "stages", "schedule"),
    [(*sizes, name) for sizes, name in product(SIZES, SCHEDULES) if (sizes[1] == 1) == (name in ("gpipe", "1f1b"))],
)
def test_torch_s_schedules_end(checked, ranks, stages, schedule):
    batches: list[Any] = [SimpleNamespace(inputs=torch.ones(1, WIDTH)) for _ in range(2 * ranks)]

    def program(rank: int) -> None:
        passes = pipeline(rank, ranks, stages, rows=1, schedule=schedule).compute_gradients(batches, Step())
        assert passes == (batches if rank == ranks - 1 else [])

    assert checked(ranks, program) > 0


def test_a_checkpoint_s_gathering_ends(checked):
    """Weights of each stage go to rank 0, one after the other; one of them is on two stages."""
    names = [["a", "b", "shared"], ["c"], ["d", "shared"]]
    tensors = [{(name, ""): torch.ones(2, 3).t() for name in mine} for mine in names]
    listed = [[(key, (3, 2), torch.float32) for key in mine] for mine in tensors]

    def program(rank: int) -> None:
        sizes = SimpleNamespace(pipeline=3, tensor=1)
        others: Any = SimpleNamespace(
            rank=rank, sizes=sizes, speaks=True, device=torch.device("cpu"), gather=lambda mine: listed
        )
        own = {name: tensor for (name, _), tensor in tensors[rank].items()}
        assert len(Assembly(others, own, {}).gathered(tensors[rank])) == (5 if rank == 0 else 0)

    assert checked(3, program) == 4
