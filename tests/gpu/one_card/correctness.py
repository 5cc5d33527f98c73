"""D1: what several ranks on one card compute, and how they end; ``one_card.sh d1`` sets its environment."""

import argparse
import time
from pathlib import Path

from tests.gpu.one_card import hazards, matrix
from tests.gpu.one_card.findings import LEFT_OUT, Findings
from tests.gpu.one_card.matrix import Card


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.one_card.correctness", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--rehearse", action="store_true", help="on CPUs, with tiny sizes, over Gloo")
    given, start, findings = parser.parse_args(), time.monotonic(), Findings()
    card = Card(given.ranks, given.backend, given.folder.absolute(), given.rehearse)
    if given.rehearse:
        matrix.check_overrides(card, findings)
    matrix.compare(card, findings)
    if reason := card.obstacle("pipeline, interleaved"):
        findings.note("evaluation by an interleaved pipeline", LEFT_OUT, reason)
    else:
        hazards.evaluate_large(card, findings)
    hazards.watch_waits(card, findings)
    hazards.repeat(card, findings)
    hazards.hurt(card, findings)
    findings.note("Apex", LEFT_OUT, "not among what is carried; make test-gpu tests it where it is installed")
    device = "CPUs, a rehearsal" if card.rehearses else "one card"
    findings.show(f"D1 on {device}: {card.ranks} ranks over {card.backend}, {time.monotonic() - start:.0f} s")
    return findings.code


if __name__ == "__main__":
    raise SystemExit(main())
