"""What an estimate says is what real ranks hold and send. Strategies are those of conf/parallel."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from manyheads.runner.answers.measure.findings import RankHolds
from manyheads.runner.answers.measure.rank.rehearsal import rehearse
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.loop.observers.held_memory import HeldMemory
from manyheads.runner.option.declared import declared
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder
from tests.answers.estimate.measured import measure, measured
from tests.in_process import small, train
from tests.launchers.conftest import strategies as several
from tests.tail import each_once, tailed

pytestmark = [pytest.mark.ci, pytest.mark.processes, pytest.mark.timeout(900)]
TEXT = ("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "data.batch_size=48")
GPT = ("model=gpt", "model.width=24", "model.depth=2", *TEXT, "trainer.grad_accumulation=2")
DEEP = ("model.depth=4", "trainer.grad_accumulation=4")  # enough for four stages
SHORT = ("trainer.max_steps=2", "trainer.epochs=1", "logger=[]")
HOW = {
    "adamw": ("optimizer=adamw",),
    "momentum-amp": ("optimizer=sgd", "optimizer.momentum=0.9", "precision=amp"),
    "adamw-amp": ("optimizer=adamw", "precision=amp"),
    "momentum": ("optimizer=sgd", "optimizer.momentum=0.9"),
}
# A rank's own kernels may save a little else than what is known of them: see docs/estimate.md.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Case:
    """Overrides beside the strategy's."""

    ranks: int
    strategy: str
    how: str
    ways: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join([str(self.ranks), self.strategy, *(way.rpartition(".")[2] for way in self.ways), self.how])

    def config(self) -> dict[str, Any]:
        return small(
            f"parallel={self.strategy}",
            *GPT,
            *(DEEP if self.strategy in ("pipeline", "mesh") else ()),
            *SHORT,
            *HOW[self.how],
            *self.ways,
            f"launcher.nproc_per_node={self.ranks}",
        )


STRATEGIES = several()
ALWAYS = [
    Case(2, "tensor", "adamw"),
    Case(2, "fsdp", "momentum-amp", ("parallel.recompute=selective",)),
]
CASES = [
    *ALWAYS,
    *(case for strategy in STRATEGIES for how in HOW if (case := Case(2, strategy, how)) not in ALWAYS),
    *(Case(3, strategy, "adamw") for strategy in ("fsdp", "zero1", "tensor", "pipeline")),
    Case(2, "pipeline", "adamw", ("parallel.schedule=gpipe",)),
    Case(2, "pipeline", "adamw", ("parallel.schedule=interleaved", "parallel.stages_per_rank=2")),
    Case(2, "ddp", "adamw", ("parallel.compression=bf16",)),
    Case(2, "ddp", "adamw", ("parallel.gradient_as_bucket_view=false", "parallel.bucket_cap_mb=0.01")),
    Case(4, "mesh", "adamw", ("parallel.shard=2", "parallel.tensor=2")),
    Case(4, "mesh", "momentum-amp", ("parallel.pipeline=2", "parallel.shard=2")),
    Case(2, "fsdp", "adamw", ("parallel.recompute=true",)),
    Case(4, "fsdp", "adamw", ("parallel.replicate=2",)),
    *(Case(2, "tensor", how, ("parallel.sequence=true",)) for how in ("adamw", "momentum-amp")),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    """The folder of a case, which trained with all others of as many ranks that are wanted."""
    wanted = [item.callspec.params["case"] for item in request.session.items if _is_ours(item)]

    @cache
    def together(ranks: int) -> Path:
        path = tmp_path_factory.mktemp(f"of_{ranks}")
        measure(path, ranks, {str(case): case.config() for case in dict.fromkeys(wanted) if case.ranks == ranks})
        return path

    return lambda case: together(case.ranks) / str(case)


def _is_ours(item: Any) -> bool:
    return "trained" in item.fixturenames and item.path == Path(__file__) and "case" in item.callspec.params


@cache
def rehearsed(case: Case) -> dict[int, RankHolds]:
    config = RunConfig.of(case.config())
    first = rehearse(config, 0)
    others = {rank: rehearse(config, rank, follows=follows).holds for rank, follows in first.unlike.items() if rank}
    return {0: first.holds, **others}


each_case = pytest.mark.parametrize("case", tailed(CASES, always=ALWAYS), ids=str)


@each_case
def test_parameters_gradients_and_optimizer_state_are_those_of_the_run(case: Case, trained: Any) -> None:
    held = json.loads(RunFolder(trained(case)).result.read_text())["held_bytes"]
    for rank, holds in rehearsed(case).items():
        assert {kind: sizes[rank] for kind, sizes in held.items()} == {
            "parameters": holds.parameters,
            "gradients": holds.gradients,
            "optimizer": holds.optimizer,
        }
    for kind, sizes in held.items():  # those that were chosen show what all hold
        assert {min(sizes), max(sizes)} == {
            pick(getattr(h, kind) for h in rehearsed(case).values()) for pick in (min, max)
        }


@each_case
def test_as_many_collectives_are_called(case: Case, trained: Any) -> None:
    for rank, holds in rehearsed(case).items():
        if holds.traffic is None:
            continue
        calls = {kind: traffic.calls for kind, traffic in holds.traffic.items()}
        reduced = calls.pop("all-reduce", 0) + calls.pop("reduce-scatter", 0)  # which is Gloo's way
        assert of(trained(case), rank)["calls"] == {**calls, **({"all-reduce": reduced} if reduced else {})}


@each_case
def test_activations_are_those_that_the_run_saves(case: Case, trained: Any) -> None:
    for rank, holds in rehearsed(case).items():
        if holds.activations is not None:
            assert holds.activations == pytest.approx(of(trained(case), rank)["activations"], rel=TOLERANCE)


def of(folder: Path, rank: int) -> dict[str, Any]:
    return json.loads((folder / f"measured.{rank}.json").read_text())


def test_bytes_that_travel_are_those_of_what_is_exchanged() -> None:
    """By arithmetic: each gradient once by ddp; each weight twice by fsdp for each micro-batch, but the root's once."""
    ddp = rehearsed(Case(2, "ddp", "adamw"))[0]
    assert ddp.traffic is not None
    assert ddp.traffic["all-reduce"].bytes == ddp.gradients + 8  # and how many tokens count
    fsdp = rehearsed(Case(2, "fsdp", "adamw"))[0]
    assert fsdp.traffic is not None
    whole, root = ddp.parameters, 4 * 24 * (13 + 1 + 2)  # the embedding in even shards, and the norm
    assert fsdp.traffic["reduce-scatter"].bytes == pytest.approx(whole, abs=100)
    assert fsdp.traffic["all-gather"].bytes == pytest.approx(2 * (2 * whole - root), rel=0.01)


def test_with_pieces_of_sequences_half_of_each_norm_s_input_and_output_is_kept() -> None:
    """By arithmetic, of 2 ranks: of two norms in each block, and of the last one's input; with their statistics."""
    whole, pieces = (
        rehearsed(Case(2, "tensor", "adamw", ways))[0].activations for ways in ((), ("parallel.sequence=true",))
    )
    assert whole is not None
    assert pieces is not None
    blocks, tokens, width = 2, 24 * 6, 24
    assert whole - pieces == 4 * tokens * ((4 * blocks + 1) * width + (2 * blocks + 1) * 2) // 2


ALONE = {
    "small_cnn": ("model=small_cnn",),
    "vit": ("model=custom", "model._target_=tests.parallel.models.ViT", "data.image_size=16"),
    "gpt": GPT,
}
ONE_PROCESS = [n for n in options("parallel") if declared("parallel", read_option("parallel", n)).one_process]


@pytest.mark.parametrize(("model", "how"), each_once(ALONE, ["momentum", "adamw-amp"]))
def test_a_run_in_one_process_holds_as_much(tmp_path: Path, model: str, how: str) -> None:
    for strategy in ONE_PROCESS if model == "small_cnn" else ["single"]:
        config = small(f"parallel={strategy}", *ALONE[model], *SHORT, *HOW[how])
        session = train(tmp_path / strategy, config)
        held = json.loads(session.folder.result.read_text())["held_bytes"]
        holds = rehearse(RunConfig.of(config), 0).holds
        assert held == {kind: [getattr(holds, kind)] for kind in ("parameters", "optimizer", "gradients")}
        assert holds.activations == pytest.approx(measured(session)["activations"], rel=TOLERANCE)
        assert holds.most is not None
        assert holds.most > holds.activations + holds.parameters + holds.optimizer
        assert sum(holds.parts().values()) == holds.most


OPTIMIZERS = [
    name for name in options("optimizer") if name not in ("custom", "several") and not name.startswith("fused_")
]  # Apex's need GPUs


@pytest.mark.parametrize("name", tailed(OPTIMIZERS, always=["adamw", "sgd"]))
def test_each_optimizer_s_state_is_found_by_its_own_step(tmp_path: Path, name: str) -> None:
    config = small(f"optimizer={name}", "optimizer.lr=0.001", *SHORT)
    session = train(tmp_path, config)
    held = HeldMemory(session.trainer.update).concluding()["held_bytes"]
    assert rehearse(RunConfig.of(config), 0).holds.optimizer == held["optimizer"][0]
