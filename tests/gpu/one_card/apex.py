"""What works of Apex without its CUDA extensions: amp's levels, its DistributedDataParallel, its SyncBatchNorm."""

from typing import NamedTuple

from manyheads.runner.config.lookup import unavailable
from tests.gpu.one_card.card import SHOWN, Card
from tests.gpu.one_card.findings import PASSED, Findings
from tests.gpu.one_card.matrix import difference, losses
from tests.gpu.one_card.runs import Outcome, Run, judge

NORMALIZED = ("model=custom", "model._target_=tests.zoo.Normalized", "+model.width=16")  # with BatchNorm
PLAIN = ("model=small_cnn", "model.width=8")  # without BatchNorm, which sees other batches on several ranks
REFERENCES = {
    "fp32": ("precision=fp32", *NORMALIZED),
    "fp64": ("precision=fp64", *PLAIN),
    "fp64 with BatchNorm": ("precision=fp64", *NORMALIZED),
}
LEVELS = {"O0": 1e-4, "O1": 5e-3, "O2": 5e-3, "O3": 5e-3}  # how near fp32, relative to a loss
SYNCHRONIZED = "Apex's SyncBatchNorm"
UPDATES = 10


class Comparison(NamedTuple):
    """``reference``: one rank's run without Apex; ``allowed``: difference relative to a loss."""

    overrides: tuple[str, ...]
    reference: str
    allowed: float


def comparisons(card: Card) -> dict[str, Comparison]:
    kept = {"O3": ("precision.keep_batchnorm_fp32=true",)}
    levels = {level: ("precision=apex", f"precision.opt_level={level}", *kept.get(level, ())) for level in LEVELS}
    amp = {
        f"Apex's amp, {level}": Comparison((*own, *NORMALIZED), "fp32", LEVELS[level]) for level, own in levels.items()
    }
    if card.backend != "nccl" and not card.rehearses:
        return amp
    ranks = ("parallel=apex", f"launcher.nproc_per_node={card.ranks}", "precision=fp64")
    synchronized = (*ranks, "parallel.sync_batchnorm=true", *NORMALIZED)
    return {
        **amp,
        "Apex's DistributedDataParallel": Comparison((*ranks, *PLAIN), "fp64", 1e-9),
        SYNCHRONIZED: Comparison(synchronized, "fp64 with BatchNorm", 1e-4),
    }


def runs(card: Card) -> list[Run]:
    """Those of ``with_apex``; without Apex none, except in a rehearsal, which has a stand-in."""
    return [] if obstacle(card) else with_apex(card)


def with_apex(card: Card) -> list[Run]:
    """The runs, and one rank's without Apex, which they are compared with."""
    single = [Run(f"for Apex, {name}", (*own, *_work(card.device))) for name, own in REFERENCES.items()]
    work = _work("cuda")  # what its options need, in a rehearsal too, which then computes on CPUs
    return [*single, *(Run(name, (*own, *work), of_gpus=True) for name, (own, _, _) in comparisons(card).items())]


def _work(device: str) -> tuple[str, ...]:
    return (
        *("data=synthetic", "data.image_size=8", "data.batch_size=32", "data.train_samples=320", "data.val_samples=32"),
        *("optimizer.lr=0.02", "optimizer.fused=false", "trainer.epochs=1", "trainer.log_every=1"),
        *(f"trainer.device={device}", *SHOWN),
    )


def obstacle(card: Card) -> str | None:
    """Why nothing of Apex runs here."""
    return None if card.rehearses else unavailable("precision", "apex")


def conclude(card: Card, outcomes: dict[str, Outcome | None], findings: Findings) -> None:
    if reason := obstacle(card):
        findings.leave_out("Apex", reason)
        return
    compared = comparisons(card)
    if SYNCHRONIZED not in compared:
        reason = "need NCCL between ranks of one card, which did not work"
        findings.leave_out("Apex's DistributedDataParallel and SyncBatchNorm", reason)
    findings.leave_out("Apex's fused optimizers", "need its CUDA extensions")
    by_name = {run.name: run for run in runs(card)}
    completed = {name: judge(card, run, outcomes[name], findings) for name, run in by_name.items()}
    for name, comparison in compared.items():
        single = f"for Apex, {comparison.reference}"
        if completed[name] and completed[single]:
            _judge(name, comparison, losses(card, by_name[single]), losses(card, by_name[name]), card, findings)


def _judge(
    name: str, comparison: Comparison, one: list[float], other: list[float], card: Card, findings: Findings
) -> None:
    if card.rehearses and name == SYNCHRONIZED:
        findings.note(name, PASSED, "ran to its end; the stand-in on CPUs exchanges no statistics")
        return
    most = difference(one, other, updates=UPDATES)
    remark = f"losses within {most:.1e} of one rank's {comparison.reference}, allowed {comparison.allowed:.1e}"
    remark += "; a stand-in on CPUs" if card.rehearses else ""
    findings.judge(name, most <= comparison.allowed, remark)
