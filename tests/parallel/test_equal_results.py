"""A strategy that takes the work apart gives the numbers of one process: in fp64, over ten updates, in everything.

And its ranks keep NCCL's rules, which Gloo does not ask for.
Strategies are those of conf/parallel; a new one is tested from its first day.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.config.lookup import read_option
from manyheads.runner.errors import RunFailed
from manyheads.runner.option.declared import declared
from manyheads.runner.run.checkpoint_places import by_step
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import rows, small, train
from tests.launchers.conftest import strategies as several
from tests.parallel.nccl_rules.replay import check_calls
from tests.parallel.nccl_rules.together import MAIN
from tests.parallel.together import train_together
from tests.tail import tailed

# The first test of some ranks waits for all of their cases.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
UPDATES, HALF = 10, 5
SAMPLES = 24 * UPDATES
COMMON = (
    *("precision=fp64", "trainer.epochs=1", "trainer.log_every=1", f"checkpoint.every={HALF}", "checkpoint.keep=2"),
    *("data.batch_size=24", f"data.train_samples={SAMPLES}", "data.val_samples=31", "logger=[]"),
)
# One sample is not a number, so that one update is left out.
NOISE = ("data=custom", "data._target_=tests.zoo.Noise", f"+data.size={SAMPLES}", "+data.nan=77", "trainer.on_nan=skip")
TEXT = (
    "task=language_model",
    "data=custom",
    "data._target_=tests.parallel.models.Text",
    f"+data.size={SAMPLES}",
    "optimizer=adamw",
)
MODELS = {
    "cnn": ("model=small_cnn", "model.width=6", *NOISE),
    "vit": ("model=custom", "model._target_=tests.parallel.models.ViT", "data.image_size=16"),
    "gpt": ("model=gpt", "model.width=24", *TEXT, "optimizer.lr=0.003"),
}
SCALED = ("precision=amp", "precision.dtype=float16", "precision.init_scale=1.0e+9")  # which overflows at first
ACCUMULATED = ("trainer.grad_accumulation=4", "trainer.clip_norm=0.5")
# The last batch has three samples, which neither ranks nor micro-batches can share evenly.
UNEVEN = ("data.drop_last=false", f"data.train_samples={SAMPLES - 21}")
KINDS = {
    "cnn": MODELS["cnn"],
    "vit": (*MODELS["vit"], *ACCUMULATED, *UNEVEN),
    "gpt": (*MODELS["gpt"], *ACCUMULATED),
    "encoder": ("model=custom", "model._target_=tests.parallel.models.Encoder", *TEXT[:-1]),
    "scaled": ("model=small_cnn", "model.width=6", *SCALED, *ACCUMULATED, f"data.train_samples={2 * SAMPLES}"),
    "images": ("model=small_cnn", "model.width=6"),
    "airbench": ("model=airbench", "model.widths=[6,8]", "model.whitening_samples=100", "data.image_size=8"),
}


def overrides(model: str) -> tuple[str, ...]:
    own = KINDS[model]
    taken = {each.partition("=")[0] for each in own} | (
        {"data.train_samples", "data.val_samples"} if "data=custom" in own else set()
    )
    return (*(each for each in COMMON if each.partition("=")[0] not in taken), *own)


@dataclass(frozen=True)
class Case:
    """``ways``: of the strategy; ``source``: the case whose checkpoint of half its updates it resumes, or "single"."""

    ranks: int
    strategy: str
    model: str
    ways: tuple[str, ...] = ()
    source: Any = None

    def __str__(self) -> str:
        named = [str(self.ranks), self.strategy, *(way.rpartition(".")[2] for way in self.ways)]
        source = self.source and str(self.source).removesuffix(f"-{self.model}")
        text = "-".join([*named, self.model, *([f"from-{source}"] if source else [])])
        return re.sub(r"[^\w.-]+", "_", text)


# Those that promise the numbers of one process.
SHARDED = ("checkpoint.format=sharded",)
STRATEGIES = [name for name in several() if declared("parallel", read_option("parallel", name)).is_exact]
WAYS = ("pipeline", "replicate", "shard", "tensor")
FRESH = [
    *(Case(2, strategy, model) for strategy in STRATEGIES for model in ("cnn", "vit", "gpt")),
    Case(2, "fsdp", "cnn", ("parallel.units=[Conv2d]", "parallel.reshard=after_backward")),
    Case(2, "fsdp", "gpt", ("parallel.prefetch=2", "parallel.recompute=true")),
    Case(2, "fsdp", "gpt", ("parallel.recompute=selective",)),
    Case(2, "mesh", "gpt", ("parallel.tensor=2", "parallel.recompute=selective")),
    *(Case(3, strategy, "gpt") for strategy in ("fsdp", "tensor", "pipeline")),
    Case(2, "pipeline", "gpt", ("parallel.schedule=gpipe", "parallel.stages=[blocks.1]")),
    Case(2, "pipeline", "gpt", ("parallel.schedule=interleaved", "parallel.stages_per_rank=2")),
    Case(2, "pipeline", "cnn", ("parallel.schedule=looped_bfs", "parallel.stages_per_rank=2")),
    Case(4, "tensor", "gpt", ("parallel.replicate=2",)),
    Case(4, "pipeline", "vit", ("parallel.replicate=2",)),
    *(
        Case(4, "mesh", "gpt", (*(f"parallel.{way}=2" for way in ways), "trainer.grad_accumulation=2"))
        for ways in combinations(WAYS, 2)
    ),
    Case(3, "fsdp", "cnn", ("parallel.units=[Conv2d]",)),  # of which some ranks have no shard
    Case(4, "fsdp", "cnn", ("parallel.replicate=2",)),
]
# Norms and what else is between split layers work on a piece of each sequence.
PIECES = ("parallel.sequence=true",)
FRESH += [
    *(Case(ranks, "tensor", "gpt", PIECES) for ranks in (2, 3)),
    Case(2, "tensor", "encoder", PIECES),
    *(
        Case(4, "mesh", "gpt", ("parallel.tensor=2", f"parallel.{way}=2", "trainer.grad_accumulation=2", *PIECES))
        for way in WAYS[:3]
    ),
]
# What they write each rank a part of: each way, blocks of columns that are rows of shards too, buffers, several stages.
PARTS = [
    *(Case(2, strategy, "gpt", SHARDED) for strategy in STRATEGIES),
    Case(2, "fsdp", "cnn", SHARDED),
    Case(2, "pipeline", "cnn", ("parallel.schedule=looped_bfs", "parallel.stages_per_rank=2", *SHARDED)),
    *(Case(3, strategy, "vit", SHARDED) for strategy in ("fsdp", "tensor", "pipeline")),
    Case(3, "fsdp", "cnn", ("parallel.units=[Conv2d]", *SHARDED)),
    *(replace(case, ways=(*case.ways, *SHARDED)) for case in FRESH if case.strategy == "mesh" and case.ranks == 4),
]
FRESH += PARTS
# They compute something else than one process does.
OTHERWISE = [
    Case(2, "ddp", "gpt", ("parallel.compression=powersgd", "parallel.powersgd_start=2")),
    Case(2, "local_sgd", "gpt", ("parallel.period=3", "parallel.start=4")),
]
OTHERWISE += [replace(case, ways=(*case.ways, *SHARDED)) for case in OTHERWISE]
PARTED = [Case(2, strategy, "gpt", SHARDED) for strategy in STRATEGIES]
SAME = [
    replace(case, source=case)
    for case in [
        *(Case(2, strategy, "gpt") for strategy in STRATEGIES),
        *OTHERWISE,
        *PARTED,
        Case(2, "fsdp", "cnn", SHARDED),
        Case(2, "tensor", "gpt", PIECES),
    ]
]
# Each on three ranks from what another one wrote with two.
OTHER = [
    Case(3, strategy, "gpt", (), Case(2, source, "gpt"))
    for strategy, source in zip(STRATEGIES, [*STRATEGIES[1:], STRATEGIES[0]], strict=True)
]
OTHER += [
    *(replace(case, source=replace(case.source, ways=SHARDED)) for case in OTHER),
    *(Case(2, strategy, "gpt", (), Case(2, "fsdp", "gpt", SHARDED)) for strategy in STRATEGIES if strategy != "fsdp"),
    *(Case(2, "fsdp", "gpt", SHARDED, Case(2, source, "gpt")) for source in ("ddp", "tensor", "pipeline")),
    *(replace(case, source=PARTED[0]) for case in FRESH if case.strategy == "mesh" and case.ranks == 4),
]
OVERFLOWING = [Case(2, strategy, "scaled") for strategy in STRATEGIES]
# Each way once, on two ranks that train together, a cut model resumed by a whole one and to the bit; products are tail.
ALWAYS = [
    *(Case(2, strategy, "gpt") for strategy in ("ddp", "zero1", "fsdp", "pipeline")),
    *(case for case in OTHERWISE if case.strategy == "local_sgd" and SHARDED[0] not in case.ways),
    Case(2, "pipeline", "gpt", ("parallel.schedule=interleaved", "parallel.stages_per_rank=2")),
    Case(2, "tensor", "gpt", PIECES),
    *(case for case in SAME if case.strategy == "pipeline" and not case.ways),
    *(case for case in SAME if case.strategy == "fsdp" and case.model == "gpt" and case.ways == SHARDED),
    *(case for case in PARTS if case.ranks == 2 and case.strategy == "pipeline" and case.model == "gpt"),
    Case(2, "tensor", "gpt", (), Case(2, "fsdp", "gpt", SHARDED)),
    Case(2, "fsdp", "cnn"),
    Case(2, "pipeline", "vit"),
]


def mostly_tail(cases: list[Case]) -> list[Any]:
    return tailed(cases, always=[case for case in cases if case in ALWAYS])


CASES = [*FRESH, *OTHERWISE, *SAME, *OTHER, *OVERFLOWING]


@pytest.fixture(scope="module")
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], RunFolder]:
    """The run of a case; all of as many ranks that this session's tests ask for are trained together."""
    base = tmp_path_factory.mktemp("equal")
    asked = {case for item in request.session.items if (case := _case(item)) is not None}
    asked |= {case.source for case in asked if case.source}
    failures: dict[int, RunFailed] = {}

    @cache
    def of(case: Case) -> RunFolder:
        folder = RunFolder(together(case.ranks) / str(case))
        if folder.path.exists():
            check_calls(folder.path, case.ranks)
        if not folder.result.exists():
            raise failures[case.ranks]
        return folder

    def given(case: Case) -> tuple[str, ...]:
        source = [f"checkpoint.resume={of_two(case.source)}"] if case.source else []
        taken = {way.partition("=")[0] for way in case.ways}
        kept = [o for o in overrides(case.model) if o.partition("=")[0] not in taken]
        return (f"parallel={case.strategy}", *kept, *case.ways, *source)

    def of_two(case: Case) -> Path:
        is_folder = SHARDED[0] in case.ways
        return RunFolder(base / str(case.ranks) / str(case)).checkpoints / f"step_{HALF:08}{'' if is_folder else '.pt'}"

    @cache
    def together(ranks: int) -> Path:
        path = base / str(ranks)
        path.mkdir()
        if ranks != 2:
            together(2)  # whose checkpoints others resume
        cases = {str(case): partial(given, case) for case in CASES if case.ranks == ranks and case in asked}
        try:
            train_together(path, ranks, cases, main=MAIN)
        except RunFailed as error:
            failures[ranks] = error
        return path

    return of


def _case(item: Any) -> Case | None:
    return item.callspec.params.get("case") if item.module.__name__ == __name__ else None


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunFolder]:
    """The same in one process."""

    @cache
    def run(model: str, *more: str) -> RunFolder:
        path = tmp_path_factory.mktemp("alone")
        train(path, small(*overrides(model), *more))
        return RunFolder(path)

    return run


@pytest.mark.parametrize("case", mostly_tail(FRESH), ids=str)
def test_it_gives_the_numbers_of_one_process(case, trained, alone):
    assert_equal(alone(case.model), trained(case))


@pytest.mark.parametrize("case", mostly_tail(SAME), ids=str)
def test_it_is_resumed_to_the_bit(case, trained):
    assert trained(case).read_result()["weights_sha256"] == trained(case.source).read_result()["weights_sha256"]


@pytest.mark.parametrize("case", mostly_tail(OTHERWISE), ids=str)
def test_others_come_close_and_say_that_they_are_other(case, trained, alone):
    """Averaged less often, or less exactly, and equal until then."""
    exact, other = ([float(row["loss"]) for row in rows(run.steps)] for run in (alone("gpt"), trained(case)))
    assert other[:2] == pytest.approx(exact[:2], rel=1e-9)
    assert other != pytest.approx(exact, rel=1e-6)
    assert other == pytest.approx(exact, rel=0.05)
    option = declared("parallel", read_option("parallel", case.strategy))
    assert not option.is_exact or "compression" in option.changes_gradients


@pytest.mark.parametrize("case", mostly_tail(OVERFLOWING), ids=str)
def test_an_overflow_on_one_rank_is_one_on_all(case, trained, alone):
    one, other = alone("scaled"), trained(case)
    scales = [real(load(run.last_checkpoint))["precision"]["scale"] for run in (one, other)]
    assert scales[0] < 1e9
    assert 0.49 < scales[1] / scales[0] < 2.1  # shares of a batch overflow a little earlier or later than the whole
    losses = [[float(row["loss"]) for row in rows(run.steps)] for run in (one, other)]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


@pytest.mark.parametrize("case", mostly_tail(OTHER), ids=str)
def test_another_strategy_resumes_it_with_other_ranks(case, trained, alone):
    assert_equal(alone(case.model), trained(case), begins=HALF)


@pytest.mark.parametrize("case", mostly_tail([*(Case(2, name, "gpt") for name in STRATEGIES), *PARTS]), ids=str)
def test_one_process_resumes_it(case, trained, alone):
    checkpoint = by_step(trained(case).checkpoints)[HALF]
    assert_equal(alone(case.model), alone(case.model, f"checkpoint.resume={checkpoint}"), begins=HALF)


def assert_equal(one: RunFolder, other: RunFolder, *, begins: int = 0, epochs: int = 1) -> None:
    """In all that a run writes down. ``begins``: the update from which on the other run has rows."""
    for table, columns in {"steps": ("loss", "grad_norm"), "epochs": ("val_loss", "val_samples")}.items():
        for column in columns:
            before, after = ([float(row[column]) for row in rows(getattr(run, table))] for run in (one, other))
            before = before[begins if table == "steps" else 0 :]
            assert len(before) == (UPDATES - begins if table == "steps" else epochs)
            assert after == pytest.approx(before, rel=1e-9, nan_ok=True), column  # of an update that was left out
    before, after = (real(load(run.last_checkpoint)) for run in (one, other))
    assert list(after["model"]) == list(before["model"])
    for name, weight in before["model"].items():
        torch.testing.assert_close(after["model"][name], weight, rtol=1e-9, atol=1e-12)
    # In the order in which they began to be trained, of one process.
    assert sorted(after["optimizer"]["state"]) == sorted(before["optimizer"]["state"])
    assert after["optimizer"]["param_groups"] == before["optimizer"]["param_groups"]
    for index, moments in before["optimizer"]["state"].items():
        torch.testing.assert_close(after["optimizer"]["state"][index], moments, rtol=1e-9, atol=1e-12)


def held(folder: RunFolder) -> tuple[list[int], list[int]]:
    """Bytes of parameters and of the optimizer's state, by rank."""
    found = json.loads(folder.result.read_text())["held_bytes"]
    return found["parameters"], found["optimizer"]


@pytest.mark.parametrize("case", mostly_tail([Case(2, "fsdp", "gpt"), Case(3, "fsdp", "gpt")]), ids=str)
def test_fsdp_holds_its_share(case, trained, alone):
    """Of weights and optimizer state one part in n, within a row of each weight."""
    whole, (weights, state) = held(alone("gpt")), held(trained(case))
    model = load(alone("gpt").last_checkpoint)["model"]
    rows_of_each = 8 * sum(weight[0].numel() if weight.ndim > 1 else 1 for weight in model.values())
    assert max(weights) <= whole[0][0] / case.ranks + rows_of_each
    assert sum(weights) == whole[0][0]
    assert sum(state) == pytest.approx(whole[1][0], rel=0.01)  # of each weight a step, which each rank counts


@pytest.mark.parametrize("case", [Case(2, "zero1", "gpt")], ids=str)
def test_zero1_holds_its_share_of_the_state_alone(case, trained, alone):
    whole, (weights, state) = held(alone("gpt")), held(trained(case))
    assert weights == [whole[0][0]] * 2
    assert sum(state) == whole[1][0]
    assert max(state) == pytest.approx(whole[1][0] / 2, rel=0.1)


@pytest.mark.parametrize("case", mostly_tail([Case(2, "tensor", "gpt"), Case(3, "tensor", "gpt")]), ids=str)
def test_tensor_holds_its_share_of_the_planned_layers(case, trained, alone):
    whole, (weights, _) = held(alone("gpt")), held(trained(case))
    model = load(alone("gpt").last_checkpoint)["model"]
    planned = 8 * sum(w.numel() for name, w in model.items() if w.ndim == 2 and name != "embedding.weight")
    assert weights == [whole[0][0] - planned + planned // case.ranks] * case.ranks


@pytest.mark.parametrize("case", mostly_tail([Case(2, "pipeline", "gpt"), Case(3, "pipeline", "gpt")]), ids=str)
def test_pipeline_holds_its_stage(case, trained, alone):
    """Each weight once, but the embedding, which the first and the last stage use."""
    whole, (weights, _) = held(alone("gpt")), held(trained(case))
    model = load(alone("gpt").last_checkpoint)["model"]
    embedding = 8 * model["embedding.weight"].numel()
    assert sum(weights) == whole[0][0] + embedding
    block = 8 * sum(weight.numel() for name, weight in model.items() if name.startswith("blocks.0."))
    assert max(weights) <= whole[0][0] / case.ranks + block + embedding
