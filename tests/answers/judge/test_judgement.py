"""A judgement's course, with runs that only seem to be made."""

from contextlib import suppress
from dataclasses import asdict, replace

import pytest

from manyheads.runner.answers.judge.judge import ConfigJudgement as Judgement
from manyheads.runner.answers.judge.judgement import BudgetTooSmall
from manyheads.runner.answers.measure import purposes
from manyheads.runner.answers.measure.rows import BASE, CHANGE, FACTS, FLOOR
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.measure.steps_task import StepFiles
from manyheads.runner.errors import ConfigurationError, Interrupted
from manyheads.runner.run.run_folder import RunFolder
from tests.answers.judge.test_claims import SAME, question, row, rows, trained


class Played(Runs):
    """Base leaves its steps, as its ranks do. ``ends``: how runs of the change end; ``found``: what all runs find."""

    def __init__(self, folder, ends=(), found=None):
        super().__init__(folder)
        self.ends, self.found = [*ends], found or {"per_epoch": 1}

    def start(self, config, purpose, *, arm, round=0, turn=0):
        number = len(self.ledger.rows())
        made = replace(row(number, purpose.name, turn, arm, self.found), folder=f"runs/{number}")
        steps = StepFiles.of(RunFolder(self.folder / made.folder)).folder
        if arm == BASE:
            steps.mkdir(parents=True)
            (steps / "step_0.pt").touch()
        self.ledger.write(made)
        if arm != BASE and (error := self.ends.pop(0)) is not None:
            raise error
        return made


@pytest.mark.parametrize("end", [None, Interrupted(2)])
def test_steps_that_were_compared_are_removed(tmp_path, end):
    config = {"seed": 1, "logger": {}, "checkpoint": {}, "trainer": {}}
    asked = question(on="speed", base=config, changed=config)
    runs = Played(tmp_path, [end])
    runs.ledger.create(asdict(asked))
    runs.start(config, purposes.steps(tolerance=0, baseline=None, trace=False), arm=BASE)  # and killed after that
    assert [*tmp_path.rglob("step_0.pt")]
    with suppress(Interrupted):
        Judgement(runs, asked, 60).examination._compare(purposes.exact)
    assert not [*tmp_path.rglob("step_0.pt")]


def test_what_a_killed_attempt_left_is_removed_if_nothing_is_compared_anymore(tmp_path):
    asked = question(on="val_loss", base={}, changed={})
    runs = Played(tmp_path, [])
    runs.ledger.create(asdict(asked))
    runs.start({}, purposes.steps(tolerance=0, baseline=None, trace=False), arm=BASE)
    for arm in (BASE, CHANGE):
        runs.ledger.write(
            replace(row(1, FACTS, 0, arm, {**SAME, "batch_statistics": False}), number=len(runs.ledger.rows()))
        )
    Judgement(runs, asked, 60).examine()
    assert not [*tmp_path.rglob("step_0.pt")]


@pytest.mark.parametrize(("rounds", "said"), [(0, ", a verdict needs at least 6"), (3, "least 3"), (6, "budget")])
def test_a_continued_judgement_says_how_many_rounds_it_still_needs(tmp_path, capsys, rounds, said):
    """Of two seconds each; six are the fewest."""
    asked = question(on="val_loss")
    runs = Played(tmp_path)
    runs.ledger.create(asdict(asked))
    for each in rows([(0, 0.1)] * rounds):
        runs.ledger.write(each)
    Judgement(runs, asked, 100)._announce(100)
    assert capsys.readouterr().err.rstrip().endswith(said)
    if rounds < 6:
        with pytest.raises(BudgetTooSmall, match="--budget: 1 rounds of 2.0 s fit, but a verdict needs at least"):
            Judgement(runs, asked, 3)._announce(3)


def test_a_judgement_is_not_continued_with_other_data(tmp_path, monkeypatch):
    monkeypatch.setattr(Judgement, "write", lambda self, claims: None)
    known, config = {**SAME, "batch_statistics": False}, {"trainer": {}, "checkpoint": {}, "seed": 1}
    asked = question(on="val_loss", base=config, changed=config)
    runs = Played(tmp_path, found={**known, "val": "other"})
    runs.ledger.create(asdict(asked))
    for number, arm in enumerate((BASE, CHANGE)):
        runs.ledger.write(row(number, FACTS, 0, arm, known))
    for number in range(2, 12):
        runs.ledger.write(row(number, FLOOR, number % 2, BASE, trained(90, number)))
    with pytest.raises(ConfigurationError, match="run 12 reads other samples than run 0: the data were changed"):
        Judgement(runs, asked, 60).decide()
    assert len(runs.ledger.rows()) == 13
