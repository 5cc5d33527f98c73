"""D1: what several ranks on one card compute, and how they end; ``one_card.sh d1`` sets its environment."""

import argparse
import time
from pathlib import Path

from tests.gpu.one_card import apex, faults, hazards, held, matrix, waits
from tests.gpu.one_card.card import Card
from tests.gpu.one_card.findings import LEFT_OUT, PASSED, Findings
from tests.gpu.one_card.runs import check_overrides, perform

FIRST, LATER = ["fp64"], ["bf16", "fp16"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.one_card.correctness", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--way", default="NCCL: works", help="how ranks of one card exchange, and what did not work")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="checks that begin later drop out")
    parser.add_argument("--rehearse", action="store_true", help="on CPUs, with tiny sizes, over Gloo")
    return parser.parse_args()


def main() -> int:
    given, start, findings = arguments(), time.time(), Findings()
    card = Card(given.ranks, given.backend, given.folder.absolute(), given.rehearse, start + given.seconds)
    before = held.card_memory()
    if card.rehearses:
        real = Card(card.ranks, "nccl", card.folder, rehearses=False)
        others = [run for part in (hazards, waits, faults) for run in part.runs(real)]
        check_overrides(real, [*matrix.composed_only(real), *others, *apex.with_apex(real)], findings)
    findings.note("exchanges between ranks", PASSED if card.backend == "nccl" else LEFT_OUT, given.way)
    outcomes = perform(card, matrix.runs(card, FIRST))
    matrix.compare(card, FIRST, outcomes, findings)
    parts = (hazards, waits, apex)
    outcomes = perform(card, [run for part in parts for run in part.runs(card)])
    for part in parts:
        part.conclude(card, outcomes, findings)
    faults.check(card, findings)
    matrix.compare(card, LATER, perform(card, matrix.runs(card, LATER)), findings)
    matrix.leave_out(card, findings)
    kept = held.still_held(before)
    if kept is None:
        findings.leave_out("memory of the card after all runs", "the driver does not tell")
    else:
        findings.judge("memory of the card after all runs", kept <= held.TOLERANCE, f"{kept:,.0f} MB more than before")
    device = "CPUs, a rehearsal" if card.rehearses else "one card"
    findings.show(f"D1 on {device}: {card.ranks} ranks over {card.backend}, {time.time() - start:.0f} s")
    return findings.code


if __name__ == "__main__":
    raise SystemExit(main())
