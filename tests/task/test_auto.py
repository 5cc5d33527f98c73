"""task=auto: the data says which."""

import pytest

from manyheads.runner.errors import ConfigurationError
from tests.in_process import typed


def test_data_that_does_not_say_is_refused():
    with pytest.raises(ConfigurationError, match=r"task=auto: data=digits does not say what its targets are"):
        typed("task=auto")
