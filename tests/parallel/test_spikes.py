"""Two ranks find the same spikes as one process, do the same with them, and again if they are resumed."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import TIMINGS, rows, small, train
from tests.loop.guards.test_spikes import GLARING, LOOKS, ORDER, UPDATES
from tests.optional_wings import audit
from tests.parallel.together import train_together
from tests.tail import tail

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]
NAN = int(ORDER[8 * 4 + 6])  # of the second rank's samples in update 5
COMMON = (*LOOKS, f"+data.nan={NAN}", "precision=fp64", "logger=[]", "trainer.log_every=1", "trainer.spike_span=2")
SKIP = (*COMMON, "trainer.on_spike=skip", "checkpoint.every=10", "checkpoint.keep=9")
BACK = (*COMMON, "trainer.on_spike=rollback", "checkpoint.every=7", "checkpoint.keep=9")
RICH = ("trainer.grad_accumulation=2", "trainer.clip_norm=0.5")
HALF = ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024", *RICH)
FORMAT = ("checkpoint.format=sharded",)
CASES: dict[str, tuple[str, ...]] = {
    "ddp-skip": (*SKIP, *RICH),
    "fsdp-skip": (*SKIP, *RICH),
    "ddp-back": BACK,
    "fsdp-back": (*BACK, *FORMAT),
    "zero1-back": BACK,
    "tensor-skip": SKIP,
    "pipeline-skip": SKIP,
    "fsdp-half": (*(each for each in BACK if each != "precision=fp64"), *HALF),
}
ALWAYS = ["ddp-skip", "fsdp-back"]
SHOWN = [*ALWAYS, *(tail(case) for case in CASES if case not in ALWAYS)]


@pytest.fixture(scope="module")
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunFolder]:
    """The run of a case on two ranks, or that which resumes it from before the second spike."""
    path = tmp_path_factory.mktemp("two")
    asked = [
        case
        for case in CASES
        if case in {item.callspec.params["case"] for item in request.session.items if item.module.__name__ == __name__}
    ]

    def given(case: str, *more: str) -> tuple[str, ...]:
        return (f"parallel={case.split('-')[0]}", *CASES[case], *more)

    def resumed(case: str) -> tuple[str, ...]:
        every = 10 if case.endswith("skip") else 7
        file = f"step_{2 * every:08}{'' if FORMAT[0] in CASES[case] else '.pt'}"
        return given(case, f"checkpoint.resume={path}/{case}/checkpoints/{file}")

    @cache
    def together() -> Path:
        cases = {case: partial(given, case) for case in asked}
        train_together(path, 2, cases | {f"{case}-resumed": partial(resumed, case) for case in asked})
        return path

    return lambda case, what="": RunFolder(together() / (case + what))


@pytest.mark.parametrize("case", SHOWN)
def test_ranks_agree_on_spikes_and_go_on_as_one_process(case, trained, tmp_path):
    folder = trained(case)
    train(tmp_path, small(*CASES[case]))
    one, two = (
        [(row["step"], row["spike"], row["reason"], sorted(row["samples"].split())) for row in rows(each.spikes)]
        for each in (RunFolder(tmp_path), folder)
    )
    assert one == two
    reasons = [reason for *_, reason, _ in two]
    assert {"nan", "loss"} <= {*reasons}
    assert all(str(GLARING) in samples for step, _, reason, samples in two if reason == "loss" and int(step) in UPDATES)
    if not case.endswith("half"):
        expected, found = (real(load(each.last_checkpoint)["model"]) for each in (RunFolder(tmp_path), folder))
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-12)
    assert audit(folder).exit_code == ExitCode.DONE


@pytest.mark.parametrize("case", SHOWN)
def test_it_is_resumed_to_the_bit(case, trained):
    whole, resumed = trained(case), trained(case, "-resumed")
    assert resumed.read_result()["weights_sha256"] == whole.read_result()["weights_sha256"]
    later = rows(whole.spikes, without=TIMINGS)[-len(rows(resumed.spikes)) :]
    assert rows(resumed.spikes) == later != []
