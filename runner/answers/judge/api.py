"""``manyheads.judge``: a judgement from Python."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.runner.api import Term, as_flags, as_typed, call
from manyheads.runner.errors import ExitCode

DECIDED = (ExitCode.DONE, ExitCode.NO, ExitCode.UNDECIDED)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a change. It is true if the change should be kept.

    ``verdict``: keep, discard or undecided. ``low``, ``high``: the interval of the gain in the first aim, in its unit;
    for seconds, of the logarithm of base's divided by the change's; None while it is unbounded. ``gain``: its median
    over the rounds; None without any. ``claims``: everything that follows from the rounds, as in judgement.json.
    ``path``: that file.
    """

    verdict: str
    low: float | None
    high: float | None
    gain: float | None
    path: Path
    claims: dict[str, Any] = field(repr=False)

    def __bool__(self) -> bool:
        return self.verdict == "keep"


def judge(
    overrides: Sequence[str] = (), *, change: str | None = None, conf: str | Path | None = None, **terms: Term
) -> Verdict:
    """Judge a change like ``manyheads judge <overrides> --change <change>``, in a separate process.

    overrides: base's, as for train. conf: a folder with your own configs, like --config-dir. terms: the command's other
    flags, such as ``on="val_acc1"``, ``least=0.1``, ``budget="1h"``, ``session="night.jsonl"``, ``rate=True``; for a
    script of your own, in place of overrides and change, ``command="python train.py {seed}"`` and ``code="HEAD"``.

    The same call again continues the same judgement. Raises ConfigurationError for a question that cannot be judged,
    RunFailed if base fails, and KeyboardInterrupt if it was stopped.
    """
    asked = terms if change is None else {"change": change, **terms}
    ended = call("judge", *as_typed(overrides, conf).arguments, *as_flags(asked))
    if ended.code not in DECIDED or not ended.result:
        raise ended.error()
    path, claims = Path(ended.result["path"]).absolute(), ended.result["claims"]
    first = claims["effects"][0] if claims["effects"] else {}
    gain = ended.result["gains"].get(first.get("on"))
    return Verdict(claims["verdict"], first.get("low"), first.get("high"), gain, path, claims)
