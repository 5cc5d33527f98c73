"""The dtype in which FSDP gathers weights and reduces gradients, by default that of autocast to bfloat16."""

import pytest

from manyheads.runner.answers.measure.findings import RankHolds
from manyheads.runner.answers.measure.rank.rehearsal import rehearse
from manyheads.runner.option.run_config import RunConfig
from tests.in_process import config, rows
from tests.parallel.together import train_together

FOUR = ("launcher.nproc_per_node=4", "data.batch_size=48", "trainer.device=cpu")
GPT = ("model=gpt", "task=language_model", "data=custom", "data._target_=tests.parallel.models.Text")
DEPTH = 4
EXACT, HALF = ("none", "none"), ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("overrides", "dtypes"),
    [
        (("parallel=fsdp",), EXACT),
        (("parallel=fsdp", "precision=bf16"), HALF),
        (("parallel=fsdp", "precision=amp"), HALF),  # on CPUs
        (("parallel=fsdp", "precision=amp", "precision.dtype=float16"), EXACT),
        (("parallel=fsdp", "precision=bf16", "parallel.param_dtype=none"), ("none", "float32")),
        (("parallel=fsdp", "precision=bf16", "parallel.reduce_dtype=bfloat16"), ("bfloat16", "bfloat16")),
        (("parallel=fsdp", "parallel.param_dtype=bfloat16"), ("bfloat16", "none")),
        (("parallel=mesh", "parallel.tensor=2", "precision=bf16"), HALF),
        (("parallel=mesh", "parallel.shard=1", "parallel.tensor=4", "precision=bf16"), EXACT),  # nothing is gathered
    ],
)
def test_auto_is_what_precision_computes_in(overrides: tuple[str, ...], dtypes: tuple[str, str]) -> None:
    section = config(*overrides, *GPT, *FOUR)["parallel"]
    assert (section["param_dtype"], section["reduce_dtype"]) == dtypes


def test_bfloat16_gathers_half_the_bytes_and_keeps_no_copy_of_the_weights() -> None:
    def holds(*overrides: str) -> RankHolds:
        run = config(
            "parallel=fsdp",
            "precision=bf16",
            *overrides,
            *GPT,
            "model.width=96",
            f"model.depth={DEPTH}",
            *FOUR,
            "data.batch_size=4",
        )
        return rehearse(RunConfig.of(run), 0).holds

    def gathered(holds: RankHolds) -> int:
        assert holds.traffic is not None
        return sum(traffic.bytes for name, traffic in holds.traffic.items() if "gather" in name)

    half, exact = holds(), holds("parallel.param_dtype=none")
    assert gathered(half) * 2 == gathered(exact)
    assert half.activations is not None
    assert exact.activations is not None
    copies = 2 * 12 * 96 * 96 * DEPTH  # bytes of the blocks' matrices
    assert exact.activations - half.activations >= copies


@pytest.mark.processes
def test_a_run_computes_like_autocast_under_ddp(tmp_path) -> None:
    ways = (
        "precision=bf16",
        *GPT,
        "model.width=24",
        "data.batch_size=24",
        "trainer.max_steps=6",
        "trainer.log_every=1",
    )
    strategies = ("fsdp", "ddp")
    train_together(tmp_path, 2, {name: lambda name=name: (f"parallel={name}", *ways) for name in strategies})
    losses = {name: [float(row["loss"]) for row in rows(tmp_path / name / "steps.csv")] for name in strategies}
    assert losses["fsdp"] == pytest.approx(losses["ddp"], rel=0.02)
    assert losses["fsdp"] != losses["ddp"]
