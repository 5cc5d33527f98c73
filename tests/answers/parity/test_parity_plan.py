"""Which strategy gets which override, and which are refused."""

import pytest
from hydra.errors import HydraException

from manyheads.runner.answers.parity.parity_plan import PlannedSide, plan
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import options
from manyheads.runner.config.origin import Origin
from manyheads.runner.errors import ConfigurationError
from tests.in_process import SMALL

pytestmark = pytest.mark.ci


def sides(*overrides: str) -> list[PlannedSide]:
    return plan(CommandLine.of(overrides, None), Origin())


def planned(*overrides: str) -> dict[str, dict]:
    """The config of each strategy that is here."""
    return {one.strategy: dict(one.run.written) for one in sides(*SMALL, *overrides) if one.run is not None}


def test_without_a_choice_all_options_are_compared_with_the_baseline_first():
    strategies = [one.strategy for one in sides()]
    assert strategies[0] == "single"
    assert sorted(strategies) == options("parallel")


@pytest.mark.parametrize("text", ["ddp", "single,ddp", "ddp,single,ddp"])
def test_the_baseline_is_always_there_and_first(text):
    assert list(planned(f"parallel={text}")) == ["single", "ddp"]


def test_double_precision_unless_one_was_chosen():
    assert planned("parallel=ddp")["ddp"]["precision"]["name"] == "fp64"
    for chosen in ("fp32", "amp"):
        assert {c["precision"]["name"] for c in planned("parallel=ddp", f"precision={chosen}").values()} == {chosen}


@pytest.mark.needs("horovod")
def test_only_who_knows_a_key_gets_it():
    configs = planned(
        *("parallel=dp,ddp,horovod", "parallel.bucket_cap_mb=7", "parallel.num_groups=2", "parallel.timeout=9"),
        *("launcher.nproc_per_node=4", "launcher.warm=false", "launcher.controller=gloo", "launcher.stall_timeout=60"),
    )
    assert configs["ddp"]["parallel"]["bucket_cap_mb"] == 7
    assert configs["ddp"]["launcher"]["warm"] is False
    assert [c["parallel"].get("timeout") for c in configs.values()] == [None, None, 9, 9]
    assert [c["launcher"]["stall_timeout"] for c in configs.values()] == [60] * 4
    assert [c["launcher"]["nproc_per_node"] for c in configs.values()] == [1, 1, 4, 4]
    assert configs["horovod"]["parallel"]["num_groups"] == 2
    assert configs["horovod"]["launcher"]["controller"] == "gloo"


def test_a_launcher_is_chosen_for_those_that_have_ranks():
    configs = planned("parallel=dp,ddp", "launcher=torchrun", "launcher.nproc_per_node=2")
    assert [c["launcher"]["name"] for c in configs.values()] == ["inline", "inline", "torchrun"]


def test_what_is_not_here_says_why():
    (apex,) = [one for one in sides("parallel=apex,dp") if one.strategy == "apex"]
    assert "Apex" in apex.reason


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["parallel=single"], "is the baseline itself"),
        (["parallel=ddpp"], "Did you mean ddp"),
        (["parallel=dp", "parallel=ddp"], "given twice"),
        (["parallel=dp,ddp", "parallel.num_groups=1"], "num_groups is a key of parallel=horovod only"),
        (["parallel=dp", "launcher.nproc_per_node=2"], "They run in one process"),
        (["parallel=dp", "launcher=spawn"], "They run in one process"),
        (["parallel=ddp", "parallel.nonsense=1"], "not a key of the run config"),
        (["parallel=ddp", "hydra.run.dir=x"], "parity starts its runs itself"),
        (["parallel=ddp", "trainer.evaluate_only=true", f"checkpoint.load={__file__}"], "trains from the start"),
        (["parallel=ddp", f"checkpoint.resume={__file__}"], "trains from the start"),
        (["parallel=ddp", "experiment=nonsense"], "experiment=nonsense"),
        (["parallel=ddp", "data.batch_size=9"], "nearest values"),
    ],
)
def test_what_is_wrong_is_refused(overrides, words):
    with pytest.raises(ConfigurationError, match=words):
        sides(*SMALL[:5], "data=synthetic", *overrides)


@pytest.mark.parametrize("override", ["optimizer=sgdd", "trainer.nonsense=1", "nonsense", "seed=1,2"])
def test_hydra_refuses_what_it_knows_to_be_wrong(override):
    with pytest.raises(HydraException):
        sides("parallel=ddp", override)
