"""Whether ranks will be forked, read off the command line before anything is composed."""

import pytest

from manyheads.launchers.warm_ahead import ahead
from manyheads.runner.config.lookup import options
from tests.composing import composed


@pytest.mark.parametrize("strategy", options("parallel"))
def test_a_strategys_own_launcher_is_the_one_that_is_composed(strategy: str) -> None:
    words = [f"parallel={strategy}"]
    assert (ahead(words) is not None) is bool(composed(*words).launcher.get("warm"))


@pytest.mark.parametrize("launcher", options("launcher"))
def test_a_typed_launcher_is_the_one_that_is_composed(launcher: str) -> None:
    words = ["parallel=ddp", f"launcher={launcher}"]
    assert (ahead(words) is not None) is bool(composed(*words).launcher.get("warm"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", False),
        ("trainer.epochs=1", False),
        ("-m trainer.epochs=1,2", True),
        ("-m parallel=ddp,dp", True),
        ("-m parallel=horovod", False),
        ("+parallel=ddp launcher=inline", False),
        ("parallel=ddp --cfg job", False),
        ("parallel=ddp --help", False),
        ("parallel=dpp", False),
        ("launcher=../launcher/none", False),
        ("launcher=../launcher/spawn", False),  # which Hydra refuses
        (f"launcher={'a' * 300}", False),  # too long for the name of a file
    ],
)
def test_what_starts_no_such_run_starts_no_server(line: str, expected: bool) -> None:
    assert (ahead(line.split()) is not None) is expected
