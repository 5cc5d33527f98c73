"""How one strategy's steps came out against the baseline's."""

import math
from dataclasses import dataclass, field
from typing import Any

from manyheads.runner.option.run_config import RunConfig

EQUAL, DIFFERENT, FAILED, NOT_HERE = "equal", "different", "failed", "not here"


@dataclass(frozen=True)
class Outcome:
    """``findings``: what its ranks found, see ``sides.Compared.findings``; ``error``: why it failed or isn't here.

    ``run``: its config, if it was started.
    """

    strategy: str
    state: str
    tolerance: float = 0.0
    findings: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    run: RunConfig | None = None

    @property
    def differs(self) -> bool:
        return self.state in (DIFFERENT, FAILED)

    @property
    def ranks(self) -> int | None:
        return self.findings.get("ranks")

    def largest(self, kind: str) -> float:
        """Of all tensors of this kind."""
        return max((e["largest"] for e in self.findings.get("differences", []) if e["kind"] == kind), default=0.0)

    def beyond(self, *kinds: str) -> list[dict[str, Any]]:
        """What exceeds the tolerance, the largest first; of these kinds, or of all."""
        found = [e for e in self.findings.get("differences", []) if "first" in e and (not kinds or e["kind"] in kinds)]
        return sorted(found, key=lambda entry: -entry["largest"])


def judged(strategy: str, findings: dict[str, Any], *, tolerance: float, run: RunConfig) -> Outcome:
    """Equal where no difference exceeds the tolerance, and all ranks made the same model and kept it the same."""
    beyond = any(not entry["largest"] <= tolerance for entry in findings["differences"])
    state = DIFFERENT if beyond or findings["initial"] or findings["apart"] else EQUAL
    return Outcome(strategy, state, tolerance, findings, run=run)


def near(a: float, b: float) -> bool:
    """The same number, as far as a sentence about it goes."""
    return math.isclose(a, b, rel_tol=1e-3)
