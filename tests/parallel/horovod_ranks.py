"""One rank of tests/parallel/test_horovod.py: trains each case in turn, and rank 0 writes what came of them.

Ranks take seconds to start, so that all wanted cases of a controller and a number of ranks share theirs.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from manyheads.runner.checkpoint.rank.load import weights_sha256
from manyheads.runner.loop.session import Session
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.rank_info import read_rank_info
from tests.in_process import small, train

FP64 = ("precision=fp64", "trainer.log_every=1", "data.batch_size=12", "data.drop_last=false", "trainer.epochs=1")
PLAIN = (*FP64, "optimizer.weight_decay=0.0")
FP16 = ("precision=amp", "precision.dtype=float16", "trainer.log_every=1", "data.batch_size=12", "trainer.epochs=2")
NOISE = (*FP64, "data=custom", "data._target_=tests.zoo.Noise", "+data.nan=3", "data.batch_size=12")
RICH = ("model=custom", "model._target_=tests.zoo.Rich", "trainer.epochs=1", "data.batch_size=12")

# What every strategy understands; the same with parallel=single is what must come out.
SHARED: dict[str, tuple[str, ...]] = {
    "plain": PLAIN,
    "accumulated and clipped": (*PLAIN, "trainer.grad_accumulation=2", "trainer.clip_norm=0.5"),
    "adamw": (*PLAIN, "optimizer=adamw"),
    "muon": (*PLAIN, "optimizer=muon"),  # its class requires lr
    "groups": (*PLAIN, "parameters.bias_weight_decay=0.1", "parameters.freeze=[features.0]"),
    "mixed and averaged": (*PLAIN, "trainer.mixup_alpha=0.4", "trainer.cutmix_alpha=1.0", "trainer.ema_decay=0.9"),
    "uphill": (*PLAIN, "trainer.sam_rho=0.1", "trainer.grad_accumulation=2"),
    "left out": (*NOISE, "trainer.on_nan=skip"),
    "scaled": (*FP16, "precision.init_scale=1.0e+9", "trainer.grad_accumulation=2", "trainer.clip_norm=0.5"),
    "master weights": (*FP16, "precision.level=O2", "trainer.clip_norm=0.5"),
}
# Horovod's own options which leave the result as it is, each laid over "plain".
NEUTRAL: dict[str, tuple[str, ...]] = {
    "no groups": ("parallel.num_groups=0",),
    "three groups": ("parallel.num_groups=3",),
    "predivided": ("parallel.gradient_predivide_factor=2.0",),
    "summed": ("parallel.op=sum", "optimizer.lr={lr}"),
}
CHANGED: dict[str, tuple[str, ...]] = {
    "compressed": (*PLAIN, "parallel.compression=fp16"),
    "batchnorm": RICH,
}
ADASUM: dict[str, tuple[str, ...]] = {"adasum": (*PLAIN, "parallel.op=adasum")}
LR = 0.05


def cases(ranks: int, controller: str) -> dict[str, tuple[str, ...]]:
    neutral = {
        name: (*PLAIN, *(override.format(lr=LR / ranks) for override in overrides))
        for name, overrides in NEUTRAL.items()
    }
    found = {"plain": PLAIN, **neutral} if ranks == 3 else {**SHARED, **neutral, **CHANGED}
    return found | ADASUM if controller == "mpi" and ranks == 2 else found


def main(out: Path, controller: str, wanted: list[str]) -> None:
    here = read_rank_info()
    results: dict[str, Any] = {}
    for name in wanted:
        overrides = cases(here.world_size, controller)[name]
        ranks = ("parallel=horovod", f"launcher.nproc_per_node={here.world_size}", f"launcher.controller={controller}")
        run = train(out / name, small(*ranks, *overrides), place=here)
        results[name] = {
            "weights": run.parallel.gather(weights_sha256(run.state.weights())),
            "scale": run.trainer.update.precision.state_dict().get("scale"),
            "skipped": run.trainer.progress.skipped,
        }
    results["collectives"] = collectives(run)
    if here.rank == 0:
        (out / "results.json").write_text(json.dumps(results))
    run.parallel.leave()


def collectives(run: Session) -> dict[str, Any]:
    parallel: Parallel = run.parallel
    own = parallel.rank + 1
    norm = nn.BatchNorm1d(2)
    norm.running_mean.fill_(own)
    parallel.share_buffers(norm)
    return {
        "sum": parallel.reduce(torch.tensor([own, 10 * own])).tolist(),
        "max": parallel.reduce(torch.tensor([own, -own], dtype=torch.float64), "max").tolist(),
        "gather": parallel.gather({"rank": parallel.rank, "text": "x" * own}),
        "buffers": parallel.gather(norm.running_mean.tolist()),
        "summary": parallel.summary,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
