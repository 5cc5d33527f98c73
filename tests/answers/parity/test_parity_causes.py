"""Sentences: each kind of finding names what it is about and what to do."""

import pytest

from manyheads.runner.answers.parity.parity_causes import causes, unused_note
from manyheads.runner.answers.parity.parity_plan import FAILED, ParityOutcome, judged
from manyheads.runner.config.lookup import read_option
from manyheads.runner.option.run_config import RunConfig
from tests.in_process import config
from tests.optional_wings import require_wing

TOLERANCE = 1e-9
DDP = read_option("parallel", "ddp")
USED = {"unused": [], "finite": True}
CULPRIT = {"number": 3, "module": "body.1", "kind": "BatchNorm2d", "reason": "statistics", "buffers": [], "alike": 2}
NOTHING = {
    "steps": 2,
    "ranks": 2,
    "differences": [],
    "initial": [],
    "apart": [],
    "culprit": None,
    "outputs_agree": True,
    "loss": None,
    "factor": None,
}


def differs(*kinds: str, step: int = 0, name: str = "head.weight") -> list[dict]:
    return [{"kind": kind, "name": name, "largest": 0.5, "step": step, "first": step} for kind in kinds]


def run_of(sections: dict) -> RunConfig:
    return RunConfig.of({**config(), **sections})


def outcome(*, config: dict | None = None, **findings) -> ParityOutcome:
    return judged("ddp", {**NOTHING, **findings}, tolerance=TOLERANCE, run=run_of(config or {}))


ALL = differs("loss", "gradient", "weight")
COMPILED = {"trainer": {**config()["trainer"], "compile": "default"}}
INITIAL = {"rank": 1, "parameter": [], "buffer": []}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"differences": ALL, "culprit": CULPRIT}, ["body.1 (BatchNorm2d), like 1 more,", "sync_batchnorm=true"]),
        (
            {"differences": ALL, "culprit": {**CULPRIT, "reason": "random", "kind": "Dropout"}},
            ["body.1 (Dropout), like 1 more, draws", "probability to 0"],
        ),
        ({"differences": ALL, "culprit": {**CULPRIT, "reason": "buffer", "buffers": ["body.1.s"]}}, ["body.1.s"]),
        ({"differences": ALL, "culprit": {**CULPRIT, "reason": "batch", "module": ""}}, ["The model itself", "other"]),
        ({"differences": ALL, "loss": [4.0, 2.0]}, ["1/2 of the baseline's", "task.reduction=sum"]),
        ({"differences": ALL, "loss": [4.0, 4.4]}, ["1.1 times the baseline's", "number of samples"]),
        ({"differences": differs("gradient"), "factor": 2.0}, ["2 times the baseline's"]),
        ({"differences": differs("gradient")}, ["Outputs and loss agree, the gradients don't"]),
        (
            {"initial": [{**INITIAL, "parameter": ["head.bias"]}]},
            ["head.bias", "initial weights", "rank 1", "hides it"],
        ),
        ({"initial": [{**INITIAL, "buffer": ["scale"]}]}, ["scale", "buffers", "rank 1"]),
        ({"apart": ["head.bias"]}, ["the ranks no longer have the same weights", "head.bias"]),
        ({"differences": differs("loss", step=4), "outputs_agree": None}, ["step 5 is the first"]),
        ({"differences": differs("weight")}, ["how the optimizer applies them"]),
        (
            {
                "differences": ALL,
                "outputs_agree": None,
                "config": {"trainer": {**config()["trainer"], "compile": "default"}},
            },
            ["trainer.compile=none"],
        ),
    ],
)
def test_a_finding_has_a_sentence(found, words):
    one = outcome(**found)
    assert one.differs
    (sentence,) = causes(one, USED)
    assert all(word in sentence for word in words), sentence


def test_gradients_that_horovod_adds_up_are_named():
    require_wing("manyheads.runner.parallel.horovod")
    section = {**read_option("parallel", "horovod"), "op": "sum"}
    (sentence,) = causes(outcome(differences=differs("gradient"), factor=2.0, config={"parallel": section}), USED)
    assert all(word in sentence for word in ("parallel.op=sum", "parallel.op=average")), sentence


def test_what_agrees_has_no_cause():
    within = [{"kind": "loss", "name": "loss", "largest": 1e-12, "step": 0}]
    assert causes(outcome(differences=within), USED) == []
    assert not outcome(differences=within).differs


def test_unused_parameters_that_weight_decay_moves():
    one = outcome(differences=differs("weight", name="aux.weight"))
    (sentence,) = causes(one, {**USED, "unused": ["aux.weight"]})
    assert "aux.weight gets no gradient" in sentence
    assert "weight decay" in sentence


def test_a_baseline_that_is_not_finite_proves_nothing():
    (sentence,) = causes(outcome(differences=ALL), {**USED, "finite": False})
    assert "nothing can be compared" in sentence


@pytest.mark.parametrize(
    ("unused", "words"), [(["a.weight", "a.bias"], "a.weight, a.bias get no gradient"), ([], "on some rank")]
)
def test_the_failure_of_ddp_names_what_is_unused(unused, words):
    error = "rank 0 failed first: RuntimeError: Expected to have finished reduction in the prior iteration before"
    (sentence,) = causes(
        ParityOutcome("ddp", FAILED, TOLERANCE, error=error, run=run_of({"parallel": DDP})), {**USED, "unused": unused}
    )
    assert words in sentence
    assert "parallel.find_unused_parameters=true" in sentence


def test_another_failure_speaks_for_itself():
    assert (
        causes(ParityOutcome("ddp", FAILED, TOLERANCE, error="out of memory", run=run_of({"parallel": DDP})), USED)
        == []
    )


def test_unused_parameters_are_worth_a_note_where_nothing_differs():
    assert unused_note(USED) == ""
    assert unused_note({**USED, "unused": list("abcd")}).startswith("a, b, c and 1 more get no gradient")
