"""What is known to go wrong on GPUs: exchanges that wait for each other, and chance."""

from tests.gpu.one_card.card import Card, replaced
from tests.gpu.one_card.findings import Findings
from tests.gpu.one_card.runs import Outcome, Run, judge

LARGE = "evaluation by an interleaved pipeline"
SIZES = {"model__width": 1024, "data__length": 1024, "data__batch_size": 64}  # 64 MB for the 16 of a micro-batch
TURNS = ("once", "again")


def runs(card: Card) -> list[Run]:
    return [*_large(card), *(run for strategy in ("ddp", "fsdp") for run in _repeated(card, strategy))]


def _large(card: Card) -> list[Run]:
    """Evaluation by a pipeline with several stages on each rank, with activations beyond NCCL's own buffers."""
    strategy = "pipeline, interleaved"
    overrides = replaced(card.overrides(strategy, "bf16"), **({} if card.rehearses else SIZES))
    return [] if card.obstacle(strategy) else [Run(LARGE, overrides)]


def _repeated(card: Card, strategy: str) -> list[Run]:
    if card.obstacle(strategy) or (card.rehearses and strategy == "ddp"):  # fsdp shows that the overrides are right
        return []
    overrides = (*card.overrides(strategy, "bf16"), "trainer.deterministic=true")
    return [Run(f"{strategy}, deterministic, {turn}", overrides) for turn in TURNS]


def conclude(card: Card, outcomes: dict[str, Outcome | None], findings: Findings) -> None:
    """That of a large evaluation, and whether runs gave the same weights twice, to the bit."""
    for run in _large(card):
        if judge(card, run, outcomes[run.name], findings):
            findings.judge(LARGE, True, "ran to its end")
    if reason := card.obstacle("pipeline, interleaved"):
        findings.leave_out(LARGE, reason)
    for strategy in ("ddp", "fsdp"):
        if reason := card.obstacle(strategy):
            findings.leave_out(f"{strategy} twice", reason)
        pair = _repeated(card, strategy)
        if pair and min(judge(card, run, outcomes[run.name], findings) for run in pair):
            digests = {run.folder(card).read_result()["weights_sha256"] for run in pair}
            findings.judge(f"{strategy} twice", len(digests) == 1, "sha256 of the weights")
