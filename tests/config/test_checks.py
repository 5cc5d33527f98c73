"""Which runs a command accepts that trains them itself."""

import pytest

from manyheads.runner.answers.measure.subject import subject_of
from manyheads.runner.errors import ConfigurationError


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("trainer.evaluate_only", ["trainer.evaluate_only=true", f"checkpoint.load={__file__}"]),
        ("checkpoint.resume", [f"checkpoint.resume={__file__}"]),
    ],
)
def test_what_does_not_train_from_the_start_is_refused(key, overrides):
    with pytest.raises(
        ConfigurationError, match=f"^{key}=.*: a measurement trains from the start. Leave it out"
    ) as refused:
        subject_of(["model=mlp", "launcher=inline", "parallel=single", *overrides])
    assert refused.value.key == key
