"""The answer of the command ``tune``."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.answers.measure.limits import Limit
from manyheads.runner.answers.measure.rows import EXACT, FACTS, FLOOR, STEPS, TRIAL
from manyheads.runner.answers.tune.budget import BETWEEN_RUNS, arm_of
from manyheads.runner.answers.tune.measurements import Choice, SearchOutcome
from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.answers.tune.screening import SCREEN
from manyheads.runner.answers.tune.search import DECIDE, FRESH, PRECISIONS
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.answers.tune.tuning_runs import LIMITS, PROOF
from manyheads.runner.machine import invocation
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.crowding import crowded_runs
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_own_place
from manyheads.runner.wording import tell

PAGE = "tuning.html"
YOURS = "your configuration"
MOST_SHOWN = 8
PHASES = {
    YOURS: (TRIAL, FLOOR),
    "screening": (SCREEN,),
    "comparing what is computed": (FACTS, STEPS, EXACT),
    "proving": (PROOF.name,),
    "deciding": (DECIDE, FRESH),
    "other precisions": (PRECISIONS,),
    "what limits": (LIMITS.name,),
    "between runs": (BETWEEN_RUNS,),
}


@dataclass(frozen=True)
class TunedChoice:
    """The fastest configuration that was found in one class of numerics."""

    numerics: Annotated[str, "the class of numerics: how its numbers compare with those of your configuration"]
    change: Annotated[str, "overrides that are added to yours; empty: your configuration is the fastest"]
    overrides: Annotated[list[str], "all overrides"]
    speedup: Annotated[float, "how many times as fast as your configuration, measured after it was chosen if possible"]
    rounds: Annotated[int, "rounds from which the speed-up was measured; 0: it is the value expected from screening"]
    low: Annotated[float | None, "lower end of the speed-up's interval over all rounds; null if it has none"]
    high: Annotated[float | None, "upper end"]
    regret: Annotated[float, "by which fraction the fastest of those measured to a decision may be faster"]
    decided: Annotated[int, "how many configurations were measured to a decision"]
    unproven: Annotated[str, "overrides of a configuration that was ahead, but may not be faster; empty: none"]

    @classmethod
    def of(cls, choice: Choice, overrides: list[str]) -> "TunedChoice":
        """The answer from a choice of the search. ``overrides``: the user's and the choice's."""
        low, high = (math.exp(bound) if math.isfinite(bound) else None for bound in (choice.low, choice.high))
        return cls(
            choice.numerics,
            " ".join(choice.candidate),
            overrides,
            math.exp(choice.gain),
            choice.rounds,
            low,
            high,
            choice.regret,
            len(choice.decided),
            " ".join(choice.unproven or ()),
        )

    def lines(self) -> Iterator[str]:
        """The choice in words: its overrides, then indented lines on its speed-up."""
        yield f"{self.numerics}: {self.change or YOURS}"
        faster = f"{self.speedup:.2f} times as fast as {YOURS} ({self._interval()})"
        text = faster if self.change else "nothing was shown to be faster"
        if self.decided > 1:
            text += f"; at most {self.regret:.1%} behind the fastest of the {self.decided} measured to a decision"
        yield f"  {text}"
        if self.unproven:
            yield f"  {self.unproven} was ahead, but may be no faster; a longer --budget may show it"

    def _interval(self) -> str:
        if not self.rounds:
            return "as expected from screening alone; a longer --budget may show it"
        if self.low is None or self.low <= 1:
            return "likely, but not shown; a longer --budget may show it"
        return f"at least {self.low:.2f}" if self.high is None else f"{self.low:.2f} to {self.high:.2f}"


@dataclass(frozen=True)
class Tuned(Answer):
    """The fastest ways to compute a run's updates on this machine."""

    folder: Annotated[Path, "the folder with the runs and their ledger"]
    page: Annotated[Path, "the page with every round"]
    base: Annotated[list[str], "the overrides of your configuration"]
    choices: Annotated[list[TunedChoice], "one for each class of numerics, your configuration's own class first"]
    screened: Annotated[dict[str, float], "the speed-up of each measured configuration in one round, by its overrides"]
    precisions: Annotated[dict[str, float], "the speed-up in other precisions in one round, by overrides"]
    refused: Annotated[dict[str, str], "why a configuration could not be tried or chosen, by its overrides or key"]
    spent: Annotated[dict[str, float], "seconds by the purpose of the runs; between: the time between runs"]
    limits: Annotated[dict[str, Limit], "what limits your configuration and the first choice, by overrides"]
    written: Annotated[Path | None, "the experiment file with the first choice; null if none was written"] = None
    crowding: Annotated[str | None, "what other programs used meanwhile; null if all runs had their cores"] = None

    @classmethod
    def of(
        cls,
        folder: Path,
        base: Sequence[str],
        outcome: SearchOutcome,
        space: Space,
        spent: Mapping[str, float],
        limits: Mapping[Variant, Limit],
        written: Path | None,
    ) -> "Tuned":
        """The answer from the outcome of a search. ``spent``: seconds by purpose."""
        screened, precisions = (
            {arm_of(variant): math.exp(gain) for variant, gain in gains.items() if variant != BASE}
            for gains in (outcome.screened, outcome.precisions)
        )
        return cls(
            folder,
            folder / PAGE,
            [*base],
            [TunedChoice.of(choice, space.overrides(choice.candidate)) for choice in outcome.choices],
            screened,
            precisions,
            dict(space.refused),
            {purpose: round(seconds, 1) for purpose, seconds in spent.items()},
            {arm_of(variant): limit for variant, limit in limits.items()},
            written,
            crowded_runs(folder),
        )

    def show(self) -> None:
        for line in (*self.lines(), *self._afterwards()):
            tell(line)

    def lines(self) -> Iterator[str]:
        """The choices and their limits in words."""
        for choice in self.choices:
            yield from choice.lines()
        if best := max(self.precisions, key=lambda name: self.precisions[name], default=None):
            yield f"with {best}: {self.precisions[best]:.2f} times as fast, in one round; see --precision any"
        for name, limit in self.limits.items():
            yield f"{YOURS if name == arm_of(BASE) else name}: {limit.sentence}"

    def _afterwards(self) -> Iterator[str]:
        yield f"tried: {len(self.screened)}; not possible: {len(self.refused)}"
        for name, reason in [*self.refused.items()][:MOST_SHOWN]:
            yield f"  {name}: {reason.partition('. ')[0].removesuffix('.')}"
        if len(self.refused) > MOST_SHOWN:
            yield f"  and {len(self.refused) - MOST_SHOWN} more, which --json lists"
        yield f"time: {', '.join(self.phases())}"
        if self.crowding is not None:
            yield self.crowding
        yield f"every round: {RunFolder(self.page)}"
        if self.written is None:
            return
        yield f"wrote {RunFolder(self.written)}"
        if not is_own_place(self.written.parent.parent):
            yield f"To use it, mark your configs as your own: {invocation.command('trust', '.')}"

    def phases(self) -> Iterator[str]:
        """The seconds that each phase of the tuning took, in words."""
        for about, purposes in PHASES.items():
            seconds = sum(self.spent.get(purpose, 0.0) for purpose in purposes)
            if seconds >= 0.5:
                yield f"{about} {seconds:.0f} s"
