"""Every strategy in three precisions, several ranks on one card, against one rank: the cases and their comparison."""

import csv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import Board
from manyheads.runner.run.run_folder import RunFolder
from tests.gpu.one_card.findings import FAILED, LEFT_OUT, PASSED, Findings, execute, last_line, train
from tests.in_process import typed

STRATEGIES = {
    "ddp": ("parallel=ddp",),
    "zero1": ("parallel=zero1",),
    "local_sgd": ("parallel=local_sgd", "parallel.period=1"),
    "ddp, compressed": ("parallel=ddp", "parallel.compression=bf16"),
    "fsdp": ("parallel=fsdp",),
    "fsdp, replicated": ("parallel=fsdp", "parallel.replicate=2"),
    "fsdp, recomputed": ("parallel=fsdp", "parallel.recompute=true"),
    "fsdp, bf16 units": ("parallel=fsdp", "parallel.param_dtype=bfloat16"),
    "tensor": ("parallel=tensor",),
    "tensor, sequence": ("parallel=tensor", "parallel.sequence=true"),
    "pipeline, gpipe": ("parallel=pipeline", "parallel.schedule=gpipe"),
    "pipeline, 1f1b": ("parallel=pipeline", "parallel.schedule=1f1b"),
    "pipeline, interleaved": ("parallel=pipeline", "parallel.schedule=interleaved", "parallel.stages_per_rank=2"),
    "mesh, pipeline x shard": ("parallel=mesh", "parallel.pipeline=2", "parallel.shard=2"),
    "mesh, shard x tensor": ("parallel=mesh", "parallel.shard=2", "parallel.tensor=2"),
}
PRECISIONS = {
    "fp64": ("precision=fp64",),
    "bf16": ("precision=bf16",),
    "fp16": ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024"),
}
CLOSE = {"fp64": 1e-9, "bf16": 2e-3, "fp16": 2.4e-4}  # relative to a loss
ROUNDING = {"ddp, compressed": 2e-3, "fsdp, bf16 units": 2e-3, "local_sgd": None}  # None: other numbers by design
OVER_GLOO = ("ddp", "zero1", "local_sgd")  # the strategies whose every exchange Gloo can do with tensors on a GPU
REHEARSED = [("ddp", "fp64"), ("fsdp", "fp64"), ("tensor, sequence", "fp64"), ("pipeline, interleaved", "fp64")]
REHEARSED += [("mesh, pipeline x shard", "fp16")]
AT_ONCE, UPDATES = 3, 4


@dataclass(frozen=True)
class Card:
    """``ranks``: that share it; ``backend``: nccl or gloo; ``rehearses``: on CPUs, with tiny sizes."""

    ranks: int
    backend: str
    folder: Path
    rehearses: bool

    @property
    def device(self) -> str:
        return "cpu" if self.rehearses else "cuda"

    def common(self) -> tuple[str, ...]:
        """The overrides of each run of four updates by a GPT of four blocks: no more than two minutes on a card."""
        tokens, width = (8, 16) if self.rehearses else (64, 96)
        return (
            *("model=gpt", "model.depth=8", f"model.width={width}", "model.heads=4", f"+data.length={tokens}"),
            *("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "+data.size=128"),
            *("data.batch_size=32", "optimizer=adamw", "optimizer.lr=0.003", "trainer.epochs=1", "trainer.log_every=1"),
            *("trainer.grad_accumulation=4", "trainer.clip_norm=0.5", "logger=[]", "checkpoint.every=0"),
            *("launcher.threads_per_rank=1", f"trainer.device={self.device}"),
        )

    def overrides(self, strategy: str, precision: str) -> tuple[str, ...]:
        """Those of a case; ``strategy``: a name in STRATEGIES, or "single"."""
        if strategy == "single":
            return ("parallel=single", *PRECISIONS[precision], *self.common())
        backend = () if self.backend == "nccl" or self.rehearses else (f"parallel.backend={self.backend}",)
        ranks = f"launcher.nproc_per_node={self.ranks}"
        return *STRATEGIES[strategy], ranks, *backend, *PRECISIONS[precision], *self.common()

    def obstacle(self, strategy: str) -> str:
        """Why a strategy cannot run on this card; empty if it can."""
        if strategy.startswith(("mesh", "fsdp, replicated")) and self.ranks < 4:
            return f"needs 4 ranks on a card, and {self.ranks} work"
        is_served = self.rehearses or self.backend == "nccl" or strategy in OVER_GLOO
        return "" if is_served else "needs NCCL between ranks of one card, which did not work"


def check_overrides(card: Card, findings: Findings) -> None:
    """Compose every case as on a machine with a GPU: what is missing or refused there is found here."""
    boards = patch.object(hardware, "_driver", lambda: ("999.9", [Board("Some GPU", "GPU-1")]))
    build = patch.object(hardware, "torch_cuda_version", lambda: "13.0")
    shared = patch.dict("os.environ", {"MANYHEADS_RANKS_PER_GPU": str(card.ranks), "CUDA_VISIBLE_DEVICES": "0"})
    real = Card(card.ranks, "nccl", card.folder, rehearses=False)
    with boards, build, shared:
        for strategy in ("single", *STRATEGIES):
            for precision in PRECISIONS:
                try:
                    typed(*real.overrides(strategy, precision))
                except ConfigurationError as error:
                    findings.note(f"overrides of {strategy}, {precision}", FAILED, str(error))
    if not findings.code or not findings.rows:
        findings.note(
            "overrides of every case, as on a GPU", PASSED, f"{len(PRECISIONS) * (len(STRATEGIES) + 1)} cases"
        )


def compare(card: Card, findings: Findings) -> None:
    """Run the cases, some at a time, and compare the losses of each with those of one rank in the same precision."""
    cases = [(s, p) for s in STRATEGIES for p in PRECISIONS if not card.rehearses or (s, p) in REHEARSED]
    for strategy in STRATEGIES:
        if reason := card.obstacle(strategy):
            findings.note(strategy, LEFT_OUT, reason)
    cases = [case for case in cases if not card.obstacle(case[0])]
    references = [("single", precision) for precision in dict.fromkeys(p for _, p in cases)]
    with ThreadPoolExecutor(2 if card.rehearses else AT_ONCE) as pool:
        codes = dict(zip(references + cases, pool.map(lambda case: _run(card, *case), references + cases), strict=True))
    for case in references:
        if codes[case]:
            findings.note(", ".join(case), FAILED, last_line(log(card, *case)))
    for strategy, precision in cases:
        check = f"{strategy}, {precision}"
        if code := codes[strategy, precision]:
            findings.note(check, FAILED, f"exit status {code}: {last_line(log(card, strategy, precision))}")
        elif not codes["single", precision]:
            _judge(card, strategy, precision, findings)
    if card.rehearses:
        findings.note(f"{3 * len(STRATEGIES) - len(cases)} other cases", LEFT_OUT, "composed only: this is a rehearsal")


def _judge(card: Card, strategy: str, precision: str, findings: Findings) -> None:
    allowed = ROUNDING.get(strategy, CLOSE[precision])
    expected, actual = (losses(folder(card, name, precision)) for name in ("single", strategy))
    if not len(expected) == len(actual) == UPDATES:
        numbers = f"{len(actual)} updates, and {len(expected)} of one rank, not {UPDATES}: see Card.common"
        findings.note(f"{strategy}, {precision}", FAILED, numbers)
        return
    if allowed is None:
        findings.note(f"{strategy}, {precision}", PASSED, "ran to its end; its numbers are other ones by design")
        return
    pairs = zip(expected, actual, strict=True)
    most = max((abs(one - other) / abs(one) for one, other in pairs), default=float("inf"))
    allowed = max(allowed, CLOSE[precision])
    findings.judge(f"{strategy}, {precision}", most <= allowed, f"losses within {most:.1e}, allowed {allowed:.1e}")


def _run(card: Card, strategy: str, precision: str) -> int:
    place = f"hydra.run.dir={folder(card, strategy, precision)}"
    command = train(*card.overrides(strategy, precision), place)
    return execute(*command, log=log(card, strategy, precision), timeout=120)


def folder(card: Card, strategy: str, precision: str) -> Path:
    return card.folder / "runs" / f"{strategy}-{precision}".replace(", ", "-").replace(" ", "_")


def log(card: Card, strategy: str, precision: str) -> Path:
    return folder(card, strategy, precision).with_suffix(".log")


def losses(path: Path) -> list[float]:
    with open(RunFolder(path).steps, newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]
