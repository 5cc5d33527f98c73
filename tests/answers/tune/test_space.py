"""What a tuning may try, as it is composed from conf/."""

import pytest

from manyheads.runner.answers.tune.race import BASE
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from tests.in_process import SMALL


def space(*overrides, **how):
    return Space(*resolve_origin(CommandLine.of([*SMALL, *overrides], None)), **how)


def test_strategies_come_first_then_data_then_how_they_are_computed():
    steps = space().steps(BASE)
    assert steps[0] == "parallel"
    assert steps.index("data.on_device") < steps.index("trainer.channels_last") < steps.index("optimizer.fused")


def test_alternatives_differ_in_one_setting():
    found = space("trainer.grad_accumulation=2").alternatives(BASE, "trainer.grad_accumulation")
    assert ("trainer.grad_accumulation=1",) in found
    assert ("trainer.grad_accumulation=2",) not in found
    assert all(len(each) == 1 for each in found)


def test_the_global_batch_stays_what_it_is():
    made = space()
    for step in made.steps(BASE):
        if step != "parallel":
            for each in filter(made.is_possible, made.alternatives(BASE, step)):
                own, changed = (made.run(name).written for name in (BASE, each))
                assert own["data"]["batch_size"] == changed["data"]["batch_size"]
                assert own["optimizer"] == changed["optimizer"] or step.startswith("optimizer.")


def test_another_strategy_brings_its_own_launcher_and_keeps_the_rest():
    made = space("launcher=spawn")
    found = made.alternatives(("launcher.threads_per_rank=2", "trainer.channels_last=true"), "parallel")
    assert ("parallel=ddp", "trainer.channels_last=true") in found
    assert all("launcher.threads_per_rank=2" not in each for each in found)
    assert not {each[0] for each in found} & {"parallel=local_sgd", "parallel=replicated"}  # which are not exact


@pytest.mark.parametrize(
    ("how", "tried", "not_tried"),
    [
        ({"over": ["trainer.*"]}, "trainer.channels_last", "parallel"),
        ({"fixed": ["parallel", "data.*"]}, "trainer.channels_last", "data.on_device"),
        (
            {"over": ["trainer.*"], "fixed": ["trainer.compile*"]},
            *("trainer.channels_last", "trainer.compile"),
        ),
    ],
)
def test_patterns_choose_the_keys(how, tried, not_tried):
    steps = space(**how).steps(BASE)
    assert tried in steps
    assert not_tried not in steps


@pytest.mark.parametrize("flag", ["over", "fixed"])
def test_a_pattern_for_no_key_is_refused_with_the_keys_there_are(flag):
    with pytest.raises(ConfigurationError, match=r"trainr\.\* is not allowed.*trainer\.channels_last"):
        space(**{flag: ["trainr.*"]}).check_patterns()


def test_other_words_for_the_same_configuration_are_no_alternative():
    made = space("trainer.grad_accumulation=2")
    assert made.is_possible(("trainer.grad_accumulation=1",))
    assert not made.is_possible(("trainer.grad_accumulation=1", "trainer.channels_last=false"))


def test_what_the_config_refuses_is_listed_with_its_reason():
    made = space()
    assert not made.is_possible(("parallel=tensor", "trainer.compile=default"))
    assert "does not work with parallel=tensor" in made.refused["parallel=tensor trainer.compile=default"]


def test_other_precisions_are_the_same_configuration():
    found = space().in_other_precisions(("trainer.channels_last=true",))
    assert ("precision=bf16", "trainer.channels_last=true") in found
    assert all("trainer.channels_last=true" in each for each in found)


def test_gradients_are_compressed_only_where_that_is_asked_for():
    ddp = ("parallel=ddp", "launcher.nproc_per_node=2")
    assert "parallel.compression" not in space().steps(ddp)
    made = space(gradients=True)
    assert made.steps(ddp)[-1] == "parallel.compression"
    found = made.alternatives(ddp, "parallel.compression")
    assert [*ddp[:1], "launcher.nproc_per_node=2", "parallel.compression=fp16"] in [[*each] for each in found]
