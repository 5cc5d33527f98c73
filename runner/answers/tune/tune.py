"""``manyheads tune``: its terms, and the steps from the question to the page and the experiment."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from manyheads.launchers.companions import refuse_start
from manyheads.launchers.warm_server import several
from manyheads.runner.answers.measure.examination import remove_steps
from manyheads.runner.answers.measure.limits import Limit
from manyheads.runner.answers.measure.rounds import new_draw
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.measure.subject import check_fresh_start
from manyheads.runner.answers.tune.answer import Tuned
from manyheads.runner.answers.tune.bench import Bench
from manyheads.runner.answers.tune.budget import Budget
from manyheads.runner.answers.tune.experiment import write
from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.answers.tune.search import TuningSearch
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.answers.tune.trial import SAME
from manyheads.runner.answers.tune.tuning_page import as_page
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import SWEEP_DIR, named_folder
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError, Interrupted, not_allowed, warn
from manyheads.runner.machine.process import handled_by, interrupt
from manyheads.runner.option.rules import seconds
from manyheads.runner.run.files import exclusive, in_turn, make_folder, write_whole
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of

ASKED, ANY = "asked", "any"


@dataclass(frozen=True)
class TuningTerms:
    """The flags of a tuning. Raises ConfigurationError for values that are not allowed.

    ``budget``: a duration such as 10m.
    ``over``: patterns of the only keys to try, separated by commas; empty: all.
    ``fix``: patterns of keys to leave unchanged, separated by commas.
    ``within``: how much slower than the best of those measured to a decision the answer may be, as a fraction.
    ``precision``: ASKED, or ANY to try every configuration in other precisions too.
    ``allow_changed_numerics``: whether gradients may be compressed, or combined other than by averaging.
    """

    budget: str = "10m"
    over: str = ""
    fix: str = ""
    within: float = 0.03
    precision: str = ASKED
    allow_changed_numerics: bool = False

    def __post_init__(self) -> None:
        if seconds(self.budget) is None:
            raise not_allowed("--budget", self.budget, "seconds, or 90s, 30m, 8h, 2d")
        if not 0 < self.within < 1:
            raise not_allowed("--within", self.within, "a number between 0 and 1, such as 0.03")

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return seconds(self.budget) or 0.0


TUNINGS = Path("outputs") / "tunings"
LOCK = ".asked"
SERVERS = 4  # processes from which ranks are forked, one for each set of launcher settings; each takes some 300 MB
FORMAT = 1


def tune(overrides: Sequence[str], terms: TuningTerms, *, config_dir: str | None = None) -> Tuned:
    """Find the fastest way to compute the updates of a run. ``overrides``: as for train.

    The same call again continues the same tuning. Raises ConfigurationError if it is refused, RunFailed if the user's
    own configuration fails, and Interrupted, with the answer so far.
    """
    words = [word for word in overrides if not word.startswith(SWEEP_DIR)]
    line, origin = resolve_origin(CommandLine.of(words, config_dir))
    over, fixed = ([pattern for pattern in text.split(",") if pattern] for text in (terms.over, terms.fix))
    space = Space(
        line,
        origin,
        over,
        fixed,
        precisions=terms.precision == ANY,
        gradients=terms.allow_changed_numerics,
    )
    check_fresh_start(space.run(BASE), what="a tuning")
    space.check_patterns()
    runs, draw = _asked(space, words, terms, named_folder(overrides, SWEEP_DIR))
    kept = f"the runs that have ended are kept in {RunFolder(runs.folder)}; the same command continues"
    with exclusive(runs.ledger.path, of=runs.folder), keeping("tune", kept), handled_by(interrupt), several(SERVERS):
        bench = Bench(runs, space.run, draw, Budget(runs.ledger, terms.seconds), space.refused)
        bench.prepare()
        search = TuningSearch(bench, space, SAME, within=terms.within)
        try:
            search.run()
            limits = bench.limits([BASE, search.outcome.choices[0].candidate])
        except Interrupted as stop:
            stop.answer = _answer(bench, words, search, space, {})
            stop.answer.show()
            raise
        finally:
            remove_steps(runs)  # with which configurations were compared
        return _answer(bench, words, search, space, limits)


def _asked(space: Space, words: Sequence[str], terms: TuningTerms, named: Path | None) -> tuple[Runs, str]:
    """The runs of a new tuning, or of one with the same question that is continued, and the draw that orders them."""
    asked = {
        "base": dict(space.run(BASE).written),
        "over": terms.over,
        "fix": terms.fix,
        "precision": terms.precision,
        "allow_changed_numerics": terms.allow_changed_numerics,
    }
    folder = (named or TUNINGS / digest_of(asked)[:12]).resolve()
    refuse_start(folder)
    make_folder(folder)
    runs = Runs(folder)
    with in_turn(folder / LOCK):
        if not runs.ledger.exists():
            runs.ledger.create({**asked, "overrides": [*words], "draw": new_draw(), "format": FORMAT})
    question = runs.ledger.question()
    if {key: question.get(key) for key in asked} != json.loads(json.dumps(asked)):
        raise ConfigurationError(f"{folder} holds another tuning. Name another folder.")
    return runs, question["draw"]


def _answer(
    bench: Bench, words: Sequence[str], search: TuningSearch, space: Space, limits: Mapping[Variant, Limit]
) -> Tuned:
    """The answer so far, after writing its page and its experiment."""
    spent = bench.budget.by_purpose()
    answer = Tuned.of(bench.runs.folder, words, search.outcome, space, spent, limits, _written(search, space, words))
    write_whole(answer.page, as_page(answer, bench.runs.ledger.rows()))
    return answer


def _written(search: TuningSearch, space: Space, words: Sequence[str]) -> Path | None:
    """Write the experiment with the first choice; return its path.

    None if the choice is the user's own configuration, or if it cannot be written.
    """
    choice = search.outcome.choices[0]
    if choice.candidate == BASE:
        return None
    about = f"{math.exp(choice.gain):.2f} times the speed of {' '.join(words) or 'the defaults'}, {choice.numerics}."
    try:
        return write(space, choice.candidate, about, here=Path.cwd())
    except ConfigurationError as error:
        warn(f"{error} No experiment was written.")
        return None
