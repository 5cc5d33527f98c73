"""Large models are built without their values, of which each rank then computes or reads its part."""

import json

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.convert_checkpoint import convert
from manyheads.runner.checkpoint.rank.load import weights_sha256
from manyheads.runner.loop.state import TrainingState
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import attempt, small
from tests.parallel.model_parallel.built_ranks import MAIN, moments_sha256
from tests.parallel.together import CASES

RANKS = 4
MOST = 0.35  # of the model's bytes
STRATEGIES = {
    "fsdp": ("parallel=fsdp",),
    "tensor": ("parallel=tensor",),
    "pipeline": ("parallel=pipeline", "trainer.grad_accumulation=4"),
    "mesh": ("parallel=mesh", "parallel.shard=2", "parallel.tensor=2"),
}
INITIAL = [f"{strategy}-initial" for strategy in STRATEGIES]
LOADED = ["fsdp-single.pt", "fsdp-sharded", "fsdp-pretrained", "tensor-single.pt", "pipeline-single.pt", "mesh-sharded"]
RESUMED = ["fsdp-resumed", "tensor-resumed"]
TEXT = ("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "optimizer=adamw")
LARGE = {"depth": 24, "width": 384, "heads": 4}  # 170 MB, of which the largest tensor has 2.4
TINY = {"depth": 1, "width": 384, "heads": 4}  # what a forward pass of a tensor plan's check takes does not shrink
CUT = {"depth": 8, "width": 16, "heads": 4}  # a pipeline needs modules at which it can begin a stage


def gpt(sizes):
    torch.manual_seed(42)
    return GPT(num_classes=13, **sizes)


def overrides(strategy, sizes, *more):
    model = ("model=gpt", *(f"model.{key}={value}" for key, value in sizes.items()))
    ranks = (f"launcher.nproc_per_node={RANKS if strategy in STRATEGIES else 1}", "seed=42", "data.batch_size=16")
    return small(*STRATEGIES.get(strategy, ()), *model, *TEXT, *ranks, *more)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What each rank reported, by case: of a strategy, how it got its weights, and the model's size."""
    path = tmp_path_factory.mktemp("built")
    model = gpt(LARGE)
    for weight in model.parameters():
        weight.data.mul_(1.5)
    torch.save({"model": model.state_dict()}, path / "single.pt")
    convert(path / "single.pt", "sharded", path / "sharded")
    cases = {}
    for strategy in STRATEGIES:
        sizes = CUT if strategy == "pipeline" else TINY
        torch.save({"model": gpt(sizes).state_dict()}, path / f"{strategy}.pt")
        tiny = overrides(strategy, sizes, f"checkpoint.load={path / strategy}.pt")
        cases |= {f"{strategy}-imports": tiny, f"{strategy}-tiny": tiny}  # imports take more than a tiny model
        cases[f"{strategy}-initial"] = overrides(strategy, LARGE)
    for case in LOADED:
        strategy, _, source = case.partition("-")
        given = path / source.replace("pretrained", "single.pt")
        key = "model.pretrained" if source == "pretrained" else "checkpoint.load"
        cases[case] = overrides(strategy, LARGE, f"{key}={given}")
    expected = {"loaded": weights_sha256(model.state_dict()), "moments": save_run(path)}
    for case in RESUMED:
        last = str(path / "checkpoints" / "last.pt")
        cases[case] = overrides(case.partition("-")[0], LARGE)
        cases[case]["checkpoint"]["resume"] = last
    folder = RunFolder(path / "run")
    folder.write_config(small("parallel=ddp", f"launcher.nproc_per_node={RANKS}", f"data.batch_size={RANKS}"))
    (folder.path / CASES).write_text(json.dumps(cases))
    launch(prepare(folder), main=MAIN)
    return {
        name: [json.loads((folder.path / f"{name}.{rank}.json").read_text()) for rank in range(RANKS)] for name in cases
    } | expected


def save_run(path):
    """Save a run of one process with a large model, in one file; returns the digest of its optimizer's state."""
    trainer = attempt(path, overrides("single", LARGE)).trainer
    draw = torch.Generator().manual_seed(7)
    for weight in trainer.update.optimizer.param_groups[0]["params"]:
        moments = [torch.rand(weight.shape, generator=draw) for _ in range(2)]
        trainer.update.optimizer.state[weight] = {
            "step": torch.tensor(3.0),
            "exp_avg": moments[0],
            "exp_avg_sq": moments[1],
        }
    state = TrainingState(trainer)
    CheckpointStore(RunFolder(path), every=1, keep=0).save(state, trainer.update.parallel, step=0, best=False)
    trainer.close()
    return moments_sha256(state.learned()["optimizer"])


@pytest.mark.processes
@pytest.mark.ci
@pytest.mark.parametrize("case", [*INITIAL, *LOADED])
def test_host_memory_holds_a_ranks_part(built, case):
    size = sum(weight.nbytes for weight in gpt(LARGE).parameters())
    # What a process takes besides varies by some MB: the most that a tiny model took with any of the strategies.
    apart = max(report["grown"] for strategy in STRATEGIES for report in built[f"{strategy}-tiny"])
    for report in built[case]:
        assert report["built_whole"] == ""
        assert report["grown"] <= MOST * size + apart


@pytest.mark.processes
@pytest.mark.ci
@pytest.mark.parametrize("case", RESUMED)
def test_a_resumed_run_holds_a_ranks_part(built, case):
    """Of the weights and of both moments; so does each rank's memory while they are read from one file."""
    size = sum(weight.nbytes for weight in gpt(LARGE).parameters())
    apart = max(report["grown"] for strategy in STRATEGIES for report in built[f"{strategy}-tiny"])
    assert built[case][0]["digest"] == built[f"{case.partition('-')[0]}-initial"][0]["digest"]
    assert built[case][0]["moments"] == built["moments"]
    assert max(report["grown"] for report in built[case]) <= 3 * MOST * size + apart


@pytest.mark.processes
@pytest.mark.ci
@pytest.mark.parametrize("case", INITIAL)
def test_initial_weights_are_those_of_one_process(built, case):
    assert built[case][0]["digest"] == weights_sha256(gpt(LARGE).state_dict())


@pytest.mark.processes
@pytest.mark.ci
@pytest.mark.parametrize("case", LOADED)
def test_loaded_weights_are_those_of_the_file(built, case):
    assert built[case][0]["digest"] == built["loaded"]
