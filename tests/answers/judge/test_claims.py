"""What follows from rows: verdicts over several aims, and rounds in which an arm fails."""

import dataclasses
import math
from dataclasses import asdict
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from manyheads.runner.answers.judge.answer import Judged, sentences
from manyheads.runner.answers.judge.claims import DISCARD, KEEP, REFUSED, UNDECIDED, claims_of
from manyheads.runner.answers.judge.config_question import ConfigQuestion as Question
from manyheads.runner.answers.judge.recorded import read
from manyheads.runner.answers.judge.terms import aims_of
from manyheads.runner.answers.measure.arm_configs import tolerances_of
from manyheads.runner.answers.measure.numerics import AS_ASKED, WITHIN_ROUNDING
from manyheads.runner.answers.measure.rows import (
    BASE,
    CHANGE,
    COMPLETED,
    EXACT,
    FACTS,
    FAILED,
    FLOOR,
    ROUND,
    STEPS,
    RunLedger,
    RunRow,
)
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.answer import Reply
from manyheads.runner.run.json_schema import to_json
from tests.in_process import typed

ON = "val_acc1,val_loss"


def question(**changes):
    known = {"overrides": [], "change": "a=1", "on": ON, "least": 0.0, "alpha": 0.05, "test": "symmetric"}
    rest = {"tolerances": [1e-3, 1e-3, 1e-9], "code": "", "draw": "1", "base": {}, "changed": {}}
    return Question(**{**known, **rest, **changes})


def row(number, purpose, place, arm, findings=None, **changes):
    began = 10.0 * number
    made = RunRow(number, purpose, number // 2, place, arm, number, "", began, COMPLETED, began + 1)
    return dataclasses.replace(made, findings=findings or {}, **changes)


def trained(acc, loss):
    return {"found": {"val_acc1": acc, "val_loss": loss}, "signs": {"val_acc1": 1, "val_loss": -1}}


def rows(changes, purpose=ROUND):
    """A floor of five rounds, then one round for each change: what both metrics gain, or None if the run fails."""
    found = [row(n, FLOOR, n % 2, BASE, trained(90 + n % 2, 1 - 0.1 * (n % 2))) for n in range(10)]
    for change in changes:
        number = len(found)
        found.append(dataclasses.replace(row(number, ROUND, 0, BASE, trained(90, 1)), round=number // 2))
        measured = {"state": FAILED, "reason": "planted"} if change is None else {}
        findings = None if change is None else trained(90 + change[0], 1 - change[1])
        found.append(row(number + 1, ROUND, 1, CHANGE, findings, **measured))
    return found


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ([(9, 0.9)] * 8, KEEP),
        ([(9, 0.9), (9, -0.9)] * 6, KEEP),  # of the second, nothing is known
        ([(9, -0.9)] * 8, DISCARD),
        ([(-9, 0.9)] * 8, DISCARD),
        ([(9, 0.9)] * 6, UNDECIDED),  # one aim alone could be decided
        ([(0, 0)] * 8, DISCARD),
    ],
)
def test_better_in_the_first_and_worse_in_none_is_kept(changes, verdict):
    claims = claims_of(question(), rows(changes))
    assert claims.verdict == verdict
    assert [each.on for each in claims.effects] == ([] if claims.reasons else ["val_acc1", "val_loss"])


@pytest.mark.parametrize("change", [(9, 0.9), (9, -0.9), (0, 0), None])
def test_the_answer_over_several_metrics_is_of_its_schema(change):
    answer = Judged.of(Path("judgement.json"), question(), claims_of(question(), rows([change] * 8)))
    reply = to_json(Reply("0.1.0", "judge", int(answer.exit_code), answer, None))
    assert [*Draft202012Validator(schema_of_command("judge")).iter_errors(reply)] == []
    assert reply["result"]["on"] == ON
    gains = {"val_acc1": change[0], "val_loss": change[1]} if change and any(change) else {}
    assert change is None or reply["result"]["gains"] == pytest.approx(gains)


def test_a_lower_loss_is_better():
    (effect,) = claims_of(question(on="val_loss"), rows([(0, 0.5)] * 8)).effects
    assert effect.differences == pytest.approx((0.5,) * 8)


def test_a_round_in_which_only_the_change_fails_is_lost_by_a_bounded_amount():
    claims = claims_of(question(on="val_acc1"), rows([(9, 0)] * 3 + [None]))
    (effect,) = claims.effects
    assert effect.differences == pytest.approx((9, 9, 9, -5 * effect.scale))
    assert claims.lost == (0, 1)
    assert claims_of(question(on="val_acc1"), rows([None] * 8)).verdict == DISCARD


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("val_acc1,", "a name is missing"),
        ("val_acc1,val_acc1", "a name is repeated"),
        ("speed,val_acc1", "speed must be the only aim.*--allow-changed-numerics"),
        ("seconds of training", "followed by what must not get worse"),
        ("val_acc1,seconds of training", "come first"),
        ("seconds", "name a target"),
    ],
)
def test_what_cannot_be_aimed_at_is_refused(on, said):
    with pytest.raises(ConfigurationError, match=said):
        aims_of(on)


def test_seconds_are_compared_by_their_logarithms():
    aim = aims_of("seconds to val_acc1=94")[0]
    assert aim.value({"found": {aim.text: 2.0}}) == -math.log(2)


ARM = {"precision": {"name": "fp32"}}
SAME = {
    "per_epoch": 5,
    "order": "a",
    "samples_per_update": [64],
    "dtypes": {"float32": 9},
    "matmul": "highest",
    "train": "a",
    "val": "b",
    "evaluated": 80,
    "overlap": 0,
}


def stepped(difference, *, has_batchnorm):
    """Rows of arms that compute on the same, and whose steps differ by so much in any precision."""
    entry = {"kind": "gradient", "name": "a", "largest": difference}
    steps = {"differences": [entry], "initial": [], "apart": [], "casts": 0}
    findings = [(FACTS, arm, {**SAME, "batch_statistics": has_batchnorm}) for arm in (BASE, CHANGE)]
    findings += [(purpose, CHANGE, steps) for purpose in (STEPS, EXACT)]
    return [row(number, purpose, 0, arm, found) for number, (purpose, arm, found) in enumerate(findings)]


@pytest.mark.parametrize(
    ("tolerances", "difference", "has_batchnorm", "numerics"),
    [
        ([1e-3, 1e-3, 2.0], 0.5, True, AS_ASKED),
        ([1e-3, 1e-3, 2.0], 0.5, False, None),
        ([1e-3, 1e-3, 2.0], 2.5, True, None),
        ([1e-3, 1e-3, 0.0], 0.5, True, None),
        ([1e-3, 1e-3, 0.0], 1e-10, False, WITHIN_ROUNDING),
        ([1e-3, 5e-2, 0.0], 1e-4, False, None),  # in double precision
    ],
)
def test_batchnorm_explains_differences_only_where_there_is_any(tolerances, difference, has_batchnorm, numerics):
    asked = question(on="speed", tolerances=tolerances, base=ARM, changed=ARM)
    claims = claims_of(asked, stepped(difference, has_batchnorm=has_batchnorm))
    assert (claims.numerics, claims.verdict) == (numerics, REFUSED if numerics is None else UNDECIDED)


OTHER = {**ARM, "precision": {"name": "bf16"}}
ONE_MORE = {**OTHER, "optimizer": {"lr": 1.0}}


@pytest.mark.parametrize(
    ("changed", "own", "loss", "exact", "numerics"),
    [
        (ARM, 0.3, 1e-6, 1e-12, WITHIN_ROUNDING),  # a ReLU switches by the last bit, but not in double precision
        (ARM, 0.3, 1e-6, None, WITHIN_ROUNDING),  # double precision comes next
        (ARM, 0.3, 1e-6, 1e-4, None),
        (ARM, 0.3, 1e-2, 1e-12, None),  # no rounding changes the loss that much
        (ARM, math.inf, 1e-6, 1e-12, None),
        (ARM, 0.3, 1e-6, FAILED, None),  # then the own precision decides
        (ARM, 1e-4, 1e-6, FAILED, WITHIN_ROUNDING),
        (OTHER, 0.3, 1e-2, None, AS_ASKED),  # in double precision, both arms would be the same
        (OTHER, 0.3, 0.1, None, None),
        (ONE_MORE, 1.6, 1e-2, 1e-12, AS_ASKED),
        (ONE_MORE, 1e-2, 1e-2, 1e-4, None),
    ],
)
def test_in_double_precision_gradients_decide_and_in_the_own_one_losses(changed, own, loss, exact, numerics):
    tolerances = [1e-3, 1e-3 if changed is ARM else 5e-2, 0.0]
    found = stepped(own, has_batchnorm=False)
    found[2].findings["differences"].append({"kind": "loss", "name": "loss", "largest": loss})
    of_exact = dict(found[3].findings, differences=[{"kind": "gradient", "name": "a", "largest": exact}])
    found[3] = dataclasses.replace(found[3], findings=of_exact, state=FAILED if exact == FAILED else COMPLETED)
    rows = found[:3] if exact is None else found
    asked = question(on="speed", tolerances=tolerances, base=ARM, changed=changed)
    claims = claims_of(asked, rows)
    assert (claims.numerics, claims.verdict) == (numerics, REFUSED if numerics is None else UNDECIDED)


def test_without_double_precision_no_round_rests_on_it():
    """A recorded judgement from which these runs were left out."""
    rows = [*stepped(0.3, has_batchnorm=False)[:3], row(3, ROUND, 0, CHANGE, {"samples": 1})]
    asked = question(on="speed", tolerances=[1e-3, 1e-3, 0.0], base=ARM, changed=ARM)
    assert "differs by 0.3 of its size" in " ".join(claims_of(asked, rows).reasons)


def test_options_state_their_tolerances():
    ranks = ("model=mlp", "launcher.nproc_per_node=2", "parallel=ddp")
    alone, ddp, rounded = (typed(*words) for words in (ranks[:1], ranks, (*ranks, "parallel.compression=bf16")))
    assert tolerances_of(alone, ddp) == [1e-3, 1e-3, 2.0]
    assert tolerances_of(ddp, rounded) == [1e-3, 5e-2, 0.0]
    assert tolerances_of(rounded, ddp) == [5e-2, 5e-2, 0.0]


@pytest.mark.parametrize(
    ("changed", "revision", "is_refused"),
    [({}, None, True), ({"data": {"root": "other"}}, None, False), ({}, "0" * 40, False)],
)
def test_training_samples_differ_only_if_that_is_asked_for(changed, revision, is_refused):
    facts = [(BASE, {**SAME, "batch_statistics": False}), (CHANGE, {**SAME, "batch_statistics": False, "train": "c"})]
    found = [row(number, FACTS, 0, arm, each) for number, (arm, each) in enumerate(facts)]
    asked = question(on="val_loss", base=ARM, changed={**ARM, **changed}, revision=revision)
    claims = claims_of(asked, found)
    assert (claims.verdict == REFUSED) == is_refused
    assert any("changes no key of data" in each for each in claims.reasons) == is_refused


@pytest.mark.parametrize(("of_change", "later", "is_refused"), [("a", "a", False), ("a", "c", True), ("b", "c", False)])
def test_data_must_not_change_before_a_judgement_is_continued(of_change, later, is_refused):
    trains = [(BASE, "a"), (CHANGE, of_change), (BASE, later)]
    facts = [(arm, {**SAME, "batch_statistics": False, "train": train}) for arm, train in trains]
    found = [row(number, FACTS, 0, arm, each) for number, (arm, each) in enumerate(facts)]
    claims = claims_of(question(on="val_loss", base=ARM, changed={**ARM, "data": {"root": "other"}}), found)
    assert any("the data were changed meanwhile" in each for each in claims.reasons) == is_refused


def test_values_of_two_definitions_are_refused():
    found = rows([(9, 0.9)] * 2)
    assert not any("version" in reason for reason in question().refusals(found))
    last = found[-1]
    found[-1] = dataclasses.replace(last, findings={**last.findings, "versions": {"val_acc1": "2", "val_loss": "1"}})
    said = [reason for reason in question().refusals(found) if "version" in reason]
    assert said == [f"val_acc1 has version 2 of its definition in run {last.number}, and version 1 in run 0"]


@pytest.mark.parametrize("wrong", [{"arm": "other"}, {"purpose": "screen"}])
def test_a_row_of_no_arm_or_purpose_of_a_judgement_is_none_of_its_rows(tmp_path, wrong):
    ledger = RunLedger(tmp_path)
    ledger.create(asdict(question()))
    ledger.write(dataclasses.replace(row(7, FLOOR, 0, BASE), **wrong))
    with pytest.raises(ConfigurationError, match="run 7 has an unknown arm or purpose"):
        read({"lines": ledger.lines()})


def test_a_question_is_recognized_by_the_digest_that_was_recorded_before():
    assert question(on="acc1", base={"seed": 1, "b": 2}, changed={"seed": 1, "b": 3}).id == "5d5b40cca0bd"


@pytest.mark.parametrize(("count", "is_said"), [(199, False), (200, True)])
def test_the_most_rounds_are_said(count, is_said):
    asked = question(on="val_acc1")
    claims = claims_of(asked, rows([(0.1 * (-1) ** number, 0) for number in range(count)]))
    assert claims.verdict == UNDECIDED
    assert any("More than 200 rounds are not run" in sentence for sentence in sentences(asked, claims)) == is_said
