"""Which runs a command accepts that trains them itself."""

import pytest

from manyheads.runner.answers.judge.arms import compose_arms
from manyheads.runner.commands.explain import explain
from manyheads.runner.errors import ConfigurationError

COMMANDS = {
    "a judgement": lambda overrides: compose_arms(overrides, "trainer.log_every=11"),
    "a measurement": explain,
}


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("trainer.evaluate_only", ["trainer.evaluate_only=true", f"checkpoint.load={__file__}"]),
        ("checkpoint.resume", [f"checkpoint.resume={__file__}"]),
    ],
)
def test_what_does_not_train_from_the_start_is_refused(what, key, overrides):
    with pytest.raises(ConfigurationError, match=f"^{key}=.*: {what} trains from the start. Leave it out") as refused:
        COMMANDS[what](["model=mlp", "launcher=inline", "parallel=single", *overrides])
    assert refused.value.key == key
