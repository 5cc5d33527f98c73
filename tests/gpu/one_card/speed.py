"""D2: what ours costs beside loops by hand, copies of checkpoints, memory against estimates."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu import isolated
from tests.gpu.one_card import copies, images, language_model, memory
from tests.gpu.one_card.card import Card
from tests.gpu.one_card.findings import FAILED, PASSED, Findings
from tests.gpu.one_card.runs import Run, check_overrides
from tests.gpu.one_card.turns import DDP, OURS, Times

SLOWER, WITH_DDP, DRIFT, PINNED = 1.03, 1.02, 0.02, 5.0  # the thresholds
EAGER, COMPILED = 15, 40  # s that turns take at least; with less left they are not begun


class Session:
    """Measures one thing after the other, each in a process of its own, while there is time."""

    def __init__(self, folder: Path, *, seconds: float, rehearses: bool):
        self.folder, self.rehearses, self.findings = folder, rehearses, Findings()
        self._ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._ends - time.monotonic()

    def measured(self, name: str, function: Callable[..., Any], *arguments: Any, least: float) -> Any:
        """What the function returns; None, which is noted, if it failed or less than ``least`` seconds are left."""
        if self.left < least:
            self.findings.leave_out(name, "the minutes are over; --minutes sets more")
            return None
        try:
            return isolated.call(function, *arguments, timeout=min(self.left, 3600), log=self.folder / "turns.log")
        except isolated.Failed as failure:
            if self.left <= 0:
                self.findings.leave_out(name, f"{failure}: the minutes are over; --minutes sets more")
                return None
            self.findings.note(name, FAILED, f"{failure}: see turns.log")
            return None

    def turns(self, name: str, function: Callable[..., Times], *, compiles: bool) -> None:
        name = f"{name}, compiled" if compiles else name
        least = COMPILED if compiles else EAGER
        times = self.measured(name, _called, function, {"compiles": compiles, "rehearses": self.rehearses}, least=least)
        if times is None:
            return
        self._judge(name, times.ratio(OURS), SLOWER, "by hand", times)
        if DDP in times.seconds:
            self._judge(f"{name}, {DDP}", times.ratio(DDP, of=OURS), WITH_DDP, "of one process", times)

    def _judge(self, name: str, ratio: float, most: float, of: str, times: Times) -> None:
        remark = f"{ratio:.3f} of the time {of}, allowed {most}; {times}"
        if self.rehearses:
            self.findings.note(name, PASSED, f"ran to its end; {remark}")
        elif times.drift > DRIFT:
            self.findings.leave_out(name, f"the card's clocks changed, {times.drift:.1%} by hand: {remark}")
        else:
            self.findings.judge(name, ratio <= most, remark)

    def copies(self) -> None:
        name = "copies of checkpoints"
        faster = self.measured(name, _called, copies.ratio, {"rehearses": self.rehearses}, least=EAGER)
        if faster is not None and self.rehearses:
            self.findings.note(name, PASSED, "ran to its end")
        elif faster is not None:
            self.findings.judge(name, faster >= PINNED, f"pinned {faster:.1f} times as fast, at least {PINNED:g}")


def _called(function: Callable[..., Any], keywords: dict[str, Any]) -> Any:
    return function(**keywords)


def _images(model: str) -> Callable[..., Times]:
    return lambda **options: images.times(model, **options)


def composed_only() -> list[Run]:
    """The runs of D2 on a card, whose overrides a rehearsal composes."""
    text = language_model.overrides(language_model.Work())
    listed = {"GPT-2": text, "GPT-2, ddp": (*text, *language_model.ONE_RANK), **memory.works(rehearses=False)}
    for name, model in images.NETWORKS.items():
        listed[name] = images.overrides(model, compiles=False)
        listed[f"{name}, compiled"] = images.overrides(model, compiles=True)
    return [Run(name, overrides) for name, overrides in listed.items()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.one_card.speed", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="what begins later drops out")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with tiny sizes, which judges no speed")
    given, start = parser.parse_args(), time.monotonic()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    session = Session(folder, seconds=given.seconds, rehearses=given.rehearse)
    if given.rehearse:
        card = Card(1, "nccl", folder, rehearses=False)
        check_overrides(card, composed_only(), session.findings)
        session.findings.leave_out("ViT-B", "composed only: this is a rehearsal, and its loops are ResNet-50's")
    networks = {"ResNet-50": "resnet18"} if given.rehearse else images.NETWORKS
    works = {"GPT-2 124M": language_model.times, **{name: _images(model) for name, model in networks.items()}}
    for name, function in works.items():
        session.turns(name, function, compiles=False)
    memory.check(folder, session.findings, rehearses=given.rehearse, timeout=min(session.left, 3600))
    session.copies()
    for name, function in works.items():
        session.turns(name, function, compiles=True)
    device = "a CPU, a rehearsal" if given.rehearse else "one card"
    session.findings.show(f"D2 on {device}: {time.monotonic() - start:.0f} s")
    return session.findings.code


if __name__ == "__main__":
    raise SystemExit(main())
