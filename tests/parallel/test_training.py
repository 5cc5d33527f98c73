"""What training adds to the plain loop gives the numbers of one process on two ranks: in fp64, in everything.

All cases share their ranks; of a feature each strategy that treats it in its own way has one.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small, train
from tests.parallel.test_equal_results import HALF, assert_equal, overrides
from tests.parallel.together import train_together
from tests.tail import tail, tailed

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]
EPOCH = f"trainer.limit_train={HALF}"  # of a run of two
GROUPS = (
    "parameters.norm_weight_decay=0",
    "parameters.layer_decay=0.7",
    "parameters.groups=[{match: blocks.1, weight_decay: 0.3}]",
    "parameters.freeze=[blocks.0.*.weight]",
)
FEATURES: dict[str, tuple[str, tuple[str, ...]]] = {  # the model of test_equal_results, and what is laid over it
    "groups": ("gpt", GROUPS),
    "sharded": ("gpt", (*GROUPS, "trainer.ema_decay=0.8", "checkpoint.format=sharded")),
    "ema": ("gpt", ("trainer.ema_decay=0.8",)),
    "swa": ("gpt", ("trainer.swa_start=1",)),  # of a single epoch: what is put into each rank's part
    "sam": ("gpt", ("trainer.sam_rho=0.1", "trainer.sam_every=3", "trainer.grad_accumulation=2")),
    "phases": (
        "gpt",
        (
            *("trainer.epochs=2", EPOCH),
            "parameters.freeze_epochs=[{match: [embedding, blocks.0], until: 2}, {match: blocks.1.*.weight, from: 2}]",
        ),
    ),
    "resized": (
        "images",
        (
            *("data.image_size=16", "trainer.epochs=2", EPOCH),
            *("trainer.resize_from=8", "trainer.resize_start=0", "trainer.resize_end=0.5"),
        ),
    ),
    # airbench94 but for BatchNorm's statistics, which are of each rank's samples, and so rest here
    "whitened": (
        "airbench",
        (
            *("optimizer=muon", "optimizer.lr=0.05", "optimizer.step_size=orthogonal", "optimizer.normalize=true"),
            "parameters.groups=[{match: [head, whiten.bias], method: sgd, lr: 1, momentum: 0.85, weight_decay: 1e-5}]",
            "parameters.freeze=[groups.*.2.bias,groups.*.5.bias]",
            "parameters.freeze_epochs=[{match: whiten, from: 2}]",
            *("data.augment=crop_flip", "data.shift=2", "data.padding=reflect", "data.flip=alternating"),
            *("trainer.epochs=2", EPOCH, "trainer.tta=flip_shift", "trainer.label_smoothing=0.2"),
        ),
    ),
    "mixed": (
        "vit",
        ("trainer.mixup_alpha=0.4", "trainer.cutmix_alpha=1.0", "trainer.clip_norm=inf", "trainer.clip_value=0.01"),
    ),
}
CASES = [
    *(f"{strategy}-groups" for strategy in ("ddp", "zero1", "fsdp", "tensor", "pipeline")),
    *(f"{strategy}-ema" for strategy in ("ddp", "zero1", "fsdp", "tensor", "pipeline")),
    *(f"{strategy}-sharded" for strategy in ("ddp", "zero1", "fsdp", "tensor", "pipeline")),
    *(f"{strategy}-swa" for strategy in ("ddp", "fsdp")),
    *(f"{strategy}-sam" for strategy in ("ddp", "fsdp", "tensor", "pipeline")),
    *(f"{strategy}-phases" for strategy in ("ddp", "zero1", "fsdp", "tensor", "pipeline")),
    *(f"{strategy}-resized" for strategy in ("ddp", "fsdp", "tensor", "pipeline")),
    "ddp-whitened",
    *(f"{strategy}-mixed" for strategy in ("ddp", "fsdp", "pipeline")),
]
ALWAYS = ["fsdp-groups", "pipeline-ema", "fsdp-sam", "ddp-mixed", "ddp-resized", "ddp-whitened"]
RESUMED = [
    "fsdp-groups",
    *(tail(case) for case in CASES if case.endswith("sharded") or case in ("fsdp-ema", "fsdp-phases")),
]


@pytest.fixture(scope="module")
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunFolder]:
    """The run of a strategy with a feature on two ranks, or that which resumes it from the middle."""
    path = tmp_path_factory.mktemp("two")
    asked = {item.callspec.params["case"] for item in request.session.items if item.module.__name__ == __name__}

    def given(case: str, *more: str) -> tuple[str, ...]:
        strategy, feature = case.split("-")
        model, own = FEATURES[feature]
        return (f"parallel={strategy}", *without(overrides(model), own), *own, *more)

    def resumed(case: str) -> tuple[str, ...]:
        file = f"step_{HALF:08}{'' if case.endswith('sharded') else '.pt'}"
        return given(case, f"checkpoint.resume={path}/{case}/checkpoints/{file}")

    @cache
    def together() -> Path:
        cases = {case: partial(given, case) for case in CASES if case in asked}
        known = [case if isinstance(case, str) else case.values[0] for case in RESUMED]
        more = {f"{case}-resumed": partial(resumed, case) for case in known if case in asked}
        train_together(path, 2, cases | more)
        return path

    return lambda case, what="": RunFolder(together() / (case + what))


def without(kept: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    taken = {each.partition("=")[0].lstrip("+") for each in own}
    return tuple(each for each in kept if each.partition("=")[0].lstrip("+") not in taken)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """The same in one process."""

    @cache
    def run(feature: str) -> RunFolder:
        path, (model, own) = tmp_path_factory.mktemp("alone"), FEATURES[feature]
        train(path, small(*without(overrides(model), own), *own))
        return RunFolder(path)

    return run


@pytest.mark.parametrize("case", tailed(CASES, always=ALWAYS))
def test_it_gives_the_numbers_of_one_process(case, trained, alone):
    one, other = alone(case.split("-")[1]), trained(case)
    assert_equal(one, other, epochs=2 if case.endswith(("phases", "resized", "whitened")) else 1)
    for name, weight in average(one).items():
        torch.testing.assert_close(average(other)[name], weight, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", RESUMED)
def test_it_is_resumed_to_the_bit(case, trained):
    resumed, whole = trained(case, "-resumed"), trained(case)
    assert resumed.read_result()["weights_sha256"] == whole.read_result()["weights_sha256"]
    for name, weight in average(whole).items():
        assert torch.equal(average(resumed)[name], weight)


def average(folder: RunFolder) -> dict[str, torch.Tensor]:
    """What a run keeps of that; nothing in one without."""
    return real(load(folder.last_checkpoint).get("average", {}).get("weights", {}))
