"""The child process that communicates with Ray."""

import pytest

from manyheads.launchers.ray import nodes
from manyheads.launchers.ray.nodes import RayClient
from manyheads.runner.errors import Kind, RunFailed


def test_one_that_exits_without_a_word_has_failed(tmp_path, monkeypatch):
    """As one that is killed: the config may be right, so it is no ConfigurationError."""
    monkeypatch.setattr(nodes, "DRIVER", "__future__")  # which does nothing
    with pytest.raises(RunFailed, match="has exited; see .*ray.log") as error:
        RayClient({}, log=tmp_path / "ray.log")
    assert error.value.failure.kind == Kind.UNREACHABLE
