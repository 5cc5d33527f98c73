"""Units that torch.compile has compiled compute under each strategy what the model's own code computes."""

from pathlib import Path

import pytest

from tests.in_process import rows
from tests.parallel.together import train_together
from tests.torch_versions import from_torch

pytestmark = [
    *(pytest.mark.processes, pytest.mark.needs("gcc"), pytest.mark.timeout(900)),
    *(pytest.mark.filterwarnings("ignore"), from_torch("2.8")),
]
GPT = (
    *("precision=fp64", "model=gpt", "model.width=24", "model.depth=2", "task=language_model", "data=custom"),
    *("data._target_=tests.parallel.models.Text", "+data.size=72", "data.batch_size=24", "optimizer=adamw"),
    *("trainer.epochs=1", "trainer.log_every=1", "trainer.grad_accumulation=2", "trainer.clip_norm=0.5", "logger=[]"),
)
COMPILED = ("trainer.compile=default", "trainer.compile_units=[auto]")


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(("parallel=fsdp", "parallel.recompute=selective"), marks=pytest.mark.ci),
        *(
            pytest.param((f"parallel={name}",), marks=pytest.mark.tail)
            for name in (
                *("fsdp", "tensor", "pipeline", "tensor parallel.sequence=true", "fsdp parallel.recompute=true"),
                *("ddp trainer.recompute=[auto]", "ddp trainer.recompute=selective"),
                "mesh parallel.tensor=2 parallel.recompute=selective",
            )
        ),
    ],
    ids=" ".join,
)
def test_compiled_units_compute_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "kernels"))
    ways = tuple(word for way in ways for word in way.split())
    train_together(tmp_path, 2, {"plain": lambda: (*ways, *GPT), "compiled": lambda: (*ways, *GPT, *COMPILED)})
    plain, compiled = (
        [float(row["loss"]) for row in rows(tmp_path / name / "steps.csv")] for name in ("plain", "compiled")
    )
    assert compiled == pytest.approx(plain, rel=1e-12)
    assert any((tmp_path / "kernels").rglob("*.cpp"))
