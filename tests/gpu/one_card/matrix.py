"""Every strategy in three precisions, several ranks on one card: losses against one rank's, memory as estimated."""

import csv

from tests.gpu.one_card.card import PRECISIONS, STRATEGIES, Card
from tests.gpu.one_card.findings import FAILED, PASSED, Findings
from tests.gpu.one_card.runs import Outcome, Run, judge

CLOSE = {"fp64": 1e-9, "bf16": 2e-3, "fp16": 2.4e-4}  # relative to a loss
ROUNDING = {"ddp, compressed": 2e-3, "fsdp, bf16 units": 2e-3, "local_sgd": None}  # None: other numbers by design
REHEARSED = [*((strategy, "fp64") for strategy in STRATEGIES), ("fsdp", "bf16"), ("mesh, pipeline x shard", "fp16")]
UPDATES = 4

Case = tuple[str, str]  # strategy, precision


def cases(card: Card, precisions: list[str]) -> list[Case]:
    """Those that can run here."""
    possible = [(s, p) for p in precisions for s in STRATEGIES if not card.obstacle(s)]
    return [case for case in possible if not card.rehearses or case in REHEARSED]


def runs(card: Card, precisions: list[str]) -> list[Run]:
    """One rank's come first, which the others are compared with."""
    needed = cases(card, precisions)
    references = [("single", precision) for precision in dict.fromkeys(precision for _, precision in needed)]
    return [_run(card, case) for case in references + needed]


def composed_only(card: Card) -> list[Run]:
    """The runs of every strategy in every precision."""
    return [_run(card, (strategy, precision)) for strategy in ("single", *STRATEGIES) for precision in PRECISIONS]


def _run(card: Card, case: Case) -> Run:
    return Run(", ".join(case), card.overrides(*case))


def leave_out(card: Card, findings: Findings) -> None:
    """Name the strategies and cases that this card does not run."""
    for strategy in STRATEGIES:
        if reason := card.obstacle(strategy):
            findings.leave_out(strategy, reason)
    if card.rehearses:
        rest = len(STRATEGIES) * len(PRECISIONS) - len(REHEARSED)
        findings.leave_out(f"{rest} other cases", "composed only: this is a rehearsal")


def compare(card: Card, precisions: list[str], outcomes: dict[str, Outcome | None], findings: Findings) -> None:
    for precision in precisions:
        needed = cases(card, [precision])
        single = _run(card, ("single", precision))
        is_known = bool(needed) and judge(card, single, outcomes[single.name], findings)
        for case in needed:
            run = _run(card, case)
            if judge(card, run, outcomes[run.name], findings):
                _judge(card, run, case, single if is_known else None, outcomes[run.name], findings)


def _judge(card: Card, run: Run, case: Case, single: Run | None, outcome: Outcome | None, findings: Findings) -> None:
    strategy, precision = case
    if outcome is None or outcome.held or single is None:
        findings.note(run.name, FAILED, outcome.held if outcome and outcome.held else "nothing to compare it with")
        return
    allowed = ROUNDING.get(strategy, CLOSE[precision])
    if allowed is None:
        findings.note(run.name, PASSED, "held as estimated; its numbers are other ones by design")
        return
    most = difference(losses(card, single), losses(card, run), updates=UPDATES)
    allowed = max(allowed, CLOSE[precision])
    findings.judge(run.name, most <= allowed, f"losses within {most:.1e}, allowed {allowed:.1e}; held as estimated")


def difference(one: list[float], other: list[float], *, updates: int) -> float:
    """The largest of two runs' losses, relative to the first one's; infinite unless both have as many updates."""
    if not len(one) == len(other) == updates:
        return float("inf")
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


def losses(card: Card, run: Run) -> list[float]:
    with open(run.folder(card).steps, newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]
